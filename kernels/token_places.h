// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tidemark::kernels {

/// Where the tokens that a rank has of a sequence lie in it: in a row from `first` on, but for a gap in their middle
/// where it has one stretch from the sequence's front and one from its back (context parallelism).
struct TokenPlaces {
  std::int64_t first = 0, gap = 0;

  /// Of number `token` of so many.
  constexpr std::int64_t Of(std::int64_t token, std::int64_t tokens) const {
    return first + token + (token < tokens / 2 ? 0 : gap);
  }
};

}  // namespace tidemark::kernels
