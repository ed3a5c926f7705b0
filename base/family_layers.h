// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tidemark {

/// Which of the model's layers the members of a family of tensors belong to.
struct FamilyLayers {
  std::string block;       ///< of which equal blocks: "layer", "dense.layer", "query.layer"; empty: no layer's
  std::uint8_t index = 0;  ///< which of a member's two indices counts them
  std::int64_t first = 0;  ///< the model's number of the layer for which that index is 0

  friend bool operator==(const FamilyLayers&, const FamilyLayers&) = default;
};

}  // namespace tidemark
