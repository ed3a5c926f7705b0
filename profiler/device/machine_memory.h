// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/quantity.h"

namespace tidemark {

/// Memory that processes started now can have on Linux; 0: not known. That is MemAvailable of /proc/meminfo, and no
/// more than is left of what the control groups of this process allow (a container's, a batch job's): their limit less
/// what they use, of which file pages that were not read lately are given back first. Both versions of the interface,
/// as in Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the kernel. `root`: in front of the paths
/// of all files that are read.
Bytes AvailableMemory(const std::string& root = "");

}  // namespace tidemark
