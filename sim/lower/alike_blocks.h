// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tidemark {

/// Where a plan that is known block by block repeats. Blocks are given in the order in which they are walked, each
/// with a description of all that is done around it, relative to it; equal descriptions mean equal nodes.
class AlikeBlocks {
 public:
  explicit AlikeBlocks(const std::vector<std::vector<std::int64_t>>& described);

  /// Equal for two blocks of one stretch of repeating descriptions that are a whole number of periods apart.
  std::vector<std::int64_t> Key(std::int64_t walked) const;
  /// Blocks after which the stretch repeats.
  std::int64_t Period(std::int64_t walked) const { return At(walked).period; }
  /// Blocks from this one to the end of its stretch; the stretch need not end with a whole period.
  std::int64_t Left(std::int64_t walked) const;

 private:
  struct Stretch {
    std::int64_t begin = 0, end = 0, period = 1;
  };
  const Stretch& At(std::int64_t walked) const;

  std::vector<Stretch> stretches_;
};

}  // namespace tidemark
