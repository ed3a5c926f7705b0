// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "models/job/job.h"
#include "models/job/job_template.h"
#include "sim/sweep/sweep.h"

namespace tidemark {

/// Tells a sweep from any other: a number made of all that its rows depend on, files by what is in them, and of nothing
/// else. `base`: the job of which it varies some keys; `limits`: what else was asked of its combinations.
std::uint64_t SweepId(const Sweep& sweep, const Job& base, JobTemplate& job, const std::string& limits);

}  // namespace tidemark
