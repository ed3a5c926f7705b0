// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "sim/memory/allocator.h"

namespace tidemark {

/// Memory that was freed while other streams used it (Allocator::FreeInUse), and when each such use is over.
class UsesUnderWay {
 public:
  void Add(Nanos until, std::uint64_t ticket) { uses_.emplace(until, ticket); }

  /// Tells the allocator of those that are over at `now`.
  void EndUntil(Nanos now, Allocator& allocator) {
    for (; !uses_.empty() && uses_.top().first <= now; uses_.pop()) {
      allocator.UseEnds(uses_.top().second);
    }
  }

  /// All streams were waited for.
  void Synchronize(Allocator& allocator) {
    allocator.Synchronize();
    uses_ = {};
  }

 private:
  using Use = std::pair<Nanos, std::uint64_t>;  // until when, and the ticket
  std::priority_queue<Use, std::vector<Use>, std::greater<>> uses_;
};

}  // namespace tidemark
