// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "base/quantity.h"
#include "models/network/block.h"

namespace tidemark {

/// The forward actions of a block, then its backward actions.
inline const Action& ActionAt(const Block& block, std::size_t action) {
  return action < block.forward.size() ? block.forward[action] : block.backward[action - block.forward.size()];
}

/// Calls `visit(tensor, writes)` for every tensor that an action names.
template <class Visit>
void ForEachTouch(const Action& action, Visit visit) {
  std::visit(
      [&](const auto& leaf) {
        for (const TensorId tensor : leaf.reads) {
          visit(tensor, false);
        }
        for (const TensorId tensor : leaf.writes) {
          visit(tensor, true);
        }
      },
      action);
}

/// When a tensor of a block's table is born and dies, as indices into forward followed by backward actions.
struct Lifetime {
  static constexpr std::size_t kNever = SIZE_MAX;
  std::size_t birth = kNever, death = kNever;
};

/// Lifetimes of all tensors of `block`: born at the first action that writes, dead after the last that touches.
std::vector<Lifetime> LifetimesOf(const Block& block);

/// Bytes per microbatch that live from the block's forward into its backward: what is "saved". The block's input
/// counts, its output does not (it is the next block's input).
Bytes SavedBytes(const Block& block);

}  // namespace tidemark
