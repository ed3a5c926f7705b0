// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/token_places.h"

namespace tidemark {

/// What one of the ranks that share each sequence has of it: a stretch from its front, and one as far from its end.
struct SequenceShare {
  std::int64_t rank = 0, ranks = 1, sequence = 1;

  std::int64_t tokens() const { return sequence / ranks; }
  kernels::TokenPlaces places() const {
    const std::int64_t stretch = tokens() / 2;
    return ranks == 1 ? kernels::TokenPlaces{} : kernels::TokenPlaces{rank * stretch, 2 * (ranks - 1 - rank) * stretch};
  }
  /// In the whole sequence, of one of its tokens.
  std::int64_t PlaceOf(std::int64_t token) const { return places().Of(token, tokens()); }
};

}  // namespace tidemark
