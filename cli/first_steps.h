// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/lint.h"
#include "models/job/job.h"
#include "sim/predict/program_length.h"

namespace tidemark {

/// A steady step by itself may fit where the steps that lead to it do not: the first ones allocate what later ones
/// find, and hand on what the allocator has cached. The lint that says so; nothing where they fit, or are too long to
/// simulate. The last window of an epoch comes once: no steps lead to it.
std::optional<Lint> FirstStepsThatDoNotFit(const Job& job, std::int64_t most_events = kMostEvents);

}  // namespace tidemark
