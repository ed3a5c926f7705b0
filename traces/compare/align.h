// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "traces/compare/history.h"
#include "traces/place.h"

namespace tidemark {

class PlaceNumbers;

/// Which lives of two histories are the same, and which instants.
///
/// Lives are paired by place (step, phase, microbatch, side), name, member and occurrence; where one side has fewer
/// occurrences, by what comes before them. What is left is paired by step, name and member (born in another place);
/// what is left then by place, category, dtype and bytes (renamed).
///
/// Another tool's trace may tell neither categories nor dtypes, and names places of a program instead of tensors. What
/// is left is then paired by bytes: of lives that begin and end in the same places first, then that begin in the same
/// place, then that are of the same step.
///
/// Instants: allocations of paired lives that come in the same order on both sides (the longest increasing
/// subsequence) are the `chain`. It cuts both histories into the same segments, numbered by the allocations of the
/// chain that lead to them. An event moved when it lies in another segment than its partner. Residents have no order.
class Alignment {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  enum Side : std::size_t { predicted = 0, measured = 1 };

  Alignment(const History& one, const History& other);

  const History& history(Side side) const { return *histories_[side]; }
  /// The life on the other side; kNone where there is none.
  std::uint32_t PartnerOf(Side side, std::uint32_t life) const { return partner_[side][life]; }
  /// Whether the trace of this side says of no tensor what it is.
  bool IsUntyped(Side side) const { return untyped_[side]; }
  std::uint32_t SegmentOf(Side side, std::size_t event) const { return segment_[side][event]; }
  /// The last allocation of the chain that leads to the event; -1: none.
  std::ptrdiff_t ChainBefore(Side side, std::size_t event) const;
  /// Whether the allocation of a paired life comes out of order.
  bool IsBirthMoved(Side side, std::uint32_t life) const;
  /// The instant of the other side that is the same as `instant`; where its surroundings differ, the highest of these.
  std::ptrdiff_t SameInstant(Side side, std::ptrdiff_t instant) const;

 private:
  void PairLives();
  void PairByBytes(const PlaceNumbers& numbers);
  void FindChain();
  void Number(Side side);
  bool IsResident(Side side, const Life& life) const { return life.born < histories_[side]->resident; }
  /// The event of the other side that this one stands for: in the same segment; -1: none.
  std::ptrdiff_t SameEvent(Side side, std::size_t event) const;

  std::array<const History*, 2> histories_;
  std::array<bool, 2> untyped_{};
  std::array<std::vector<std::uint32_t>, 2> partner_, segment_;
  std::array<std::vector<std::size_t>, 2> chain_;  ///< events, ascending; equal lengths
  std::array<std::vector<bool>, 2> in_chain_;      ///< by life
};

inline Alignment::Side Other(Alignment::Side side) {
  return side == Alignment::predicted ? Alignment::measured : Alignment::predicted;
}

}  // namespace tidemark
