// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "sim/program/program.h"

namespace tidemark {

/// An outermost loop that two programs run unlike often.
struct LongerLoop {
  std::size_t loop = 0;         ///< index among the nodes of the one that runs it more often
  std::int64_t low = 0;         ///< iterations in the other
  std::int64_t difference = 0;  ///< more than 0

  friend bool operator==(const LongerLoop&, const LongerLoop&) = default;
};

/// The loop that runs more often in `high`, where that is all that makes `high` need other memory or take another time
/// than `low`: names, indices and factors of what it computes do neither. In `low` its body may stand by itself,
/// without a loop, or not at all. Nothing where they differ in more, or in nothing.
std::optional<LongerLoop> FindLongerLoop(const Program& low, const Program& high);

}  // namespace tidemark
