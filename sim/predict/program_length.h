// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "models/job/job.h"
#include "sim/program/program.h"

namespace tidemark {

/// What walks through a step event by event keeps all of them: this many take about a gigabyte and some seconds.
inline constexpr std::int64_t kMostEvents = 20'000'000;

/// The events of all roles of a step. Cost: the program as it is written, not unrolled.
std::int64_t CountEvents(const StepProgram& step);

/// Refuses a step of more than `most` events; `hint` is what else one can do.
Status CheckLength(const StepProgram& step, const Job& job, const std::string& hint, std::int64_t most = kMostEvents);

}  // namespace tidemark
