// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

namespace tidemark {

/// A dense index into the table that `Tag` names. No arithmetic, and ids of different tables do not mix.
template <class Tag>
struct Id {
  std::uint32_t index = kNone;

  static constexpr std::uint32_t kNone = 0xffffffff;
  constexpr bool valid() const { return index != kNone; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace tidemark
