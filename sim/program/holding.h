// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

/// Parameters of equal blocks in a row: "layer" (all of the block's own that are trained) or "layer.wq", of the run's
/// blocks first, first + 1, ... Negative, where the family's first buffers, which are never used, would have it of a
/// block that does not exist.
struct HeldRun {
  std::string name;
  std::int64_t first = 0, count = 1;
  friend bool operator==(const HeldRun&, const HeldRun&) = default;
};

/// How the numbers of parameters are divided between the ranks of a group. Each part is as large as the largest: what
/// it holds beyond its own numbers is padding.
enum class Cut : std::uint8_t {
  none,
  rows,      ///< dimension 0 of each parameter by itself (torch.chunk)
  elements,  ///< each parameter by itself, flattened
  together   ///< all of them one behind the other, flattened
};

enum class Parts : std::uint8_t {
  own,  ///< this rank's part of each parameter
  all   ///< what every rank has, in the order of the ranks
};

/// What a stretch of a buffer holds of the model's numbers (weights, their gradients, optimizer state) and in which
/// order: which numbers a copy, a sum or an update means. The simulator's sizes and times do not depend on it. The
/// executor computes from it and the model's own tables how large the buffer has to be, and refuses one that is not.
/// In the n-th buffer of a family all blocks are n further.
struct Holding {
  Cut cut = Cut::none;
  std::int64_t ranks = 1;  ///< between which the numbers are divided
  Parts parts = Parts::own;
  bool frozen = false;        ///< parameters that are not trained are there as well
  bool masters = false;       ///< in the precision of what the optimizer updates, whatever the buffer's category
  bool unpadded = false;      ///< each part is as large as its own numbers (of Cut::together)
  std::vector<HeldRun> of;    ///< one behind the other
  std::int64_t aligned = 1;   ///< each begins at a multiple of this within the whole (of Cut::together)
  std::int64_t multiple = 1;  ///< elements are rounded up to a multiple of this: of Cut::together before they are cut
  friend bool operator==(const Holding&, const Holding&) = default;
};

std::string_view Name(Cut cut);
std::string_view Name(Parts parts);

}  // namespace tidemark
