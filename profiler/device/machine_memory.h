// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/quantity.h"

namespace tidemark {

/// Memory that processes started now can have on Linux; nothing: the system does not say. That is MemAvailable of
/// /proc/meminfo (Documentation/filesystems/proc.rst of the kernel), and no more than is left of what the cgroups of
/// this process allow, v1 or v2: a container's, a batch job's. Of what a cgroup uses, its file pages and its
/// reclaimable slabs count as available, as they do in MemAvailable (memory.stat in admin-guide/cgroup-v2.rst,
/// cgroup-v1/memory.rst). memory.high, which slows a cgroup down, is not looked at. `root`: in front of the paths of
/// all files that are read.
std::optional<Bytes> AvailableMemory(const std::string& root = "");

}  // namespace tidemark
