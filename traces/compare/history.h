// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/quantity.h"
#include "traces/trace.h"

namespace tidemark {

/// One allocation and the free that ends it, as events of a trace.
struct Life {
  static constexpr std::size_t kNever = ~std::size_t{0};

  std::uint32_t tensor = 0;
  std::int32_t index0 = 0, index1 = 0;
  std::size_t born = 0, died = kNever;
};

/// What the events of a trace come to. An instant is the moment right after an event; -1: before all.
struct History {
  const Trace* trace = nullptr;
  std::vector<Life> lives;             ///< in order of birth
  std::vector<std::uint32_t> life_of;  ///< by event: the life that it begins or ends
  std::vector<Bytes> total;            ///< by event: right after it
  std::ptrdiff_t peak = -1;            ///< the first instant of the highest total
  std::size_t resident = 0;            ///< how many events at the beginning allocate outside of phases

  Bytes BytesOf(const Life& life) const { return trace->tensors[life.tensor].bytes; }
  Bytes TotalAt(std::ptrdiff_t instant) const {
    return instant < 0 ? Bytes(0) : total[static_cast<std::size_t>(instant)];
  }
  static bool IsAlive(const Life& life, std::ptrdiff_t instant) {
    return instant >= 0 && life.born <= static_cast<std::size_t>(instant) &&
           (life.died == Life::kNever || life.died > static_cast<std::size_t>(instant));
  }
};

/// `of_tensors`: totals are of the tensors' bytes, else the allocator's. The trace is sound and outlives the result.
History MakeHistory(const Trace& trace, bool of_tensors);

}  // namespace tidemark
