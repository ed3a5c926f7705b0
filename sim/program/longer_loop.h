// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "sim/program/program.h"

namespace tidemark {

/// The outermost loop (its index among the nodes) that runs more often in `high`, where that is all that makes `high`
/// need other memory or take another time than `low`: names, indices and factors of what it computes do neither.
/// Nothing where they differ in more, or in nothing.
std::optional<std::size_t> LongerLoop(const Program& low, const Program& high);

}  // namespace tidemark
