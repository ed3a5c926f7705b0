// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>

#include "profiler/execute/watchdog.h"

namespace tidemark {

/// What the system (/proc) and the rank itself tell of its process; nothing where there is no such process.
std::optional<RankSample> SampleProcess(pid_t pid, const RankProgress& progress);

}  // namespace tidemark
