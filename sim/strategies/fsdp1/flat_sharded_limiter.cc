// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp1/flat_sharded_limiter.h"

#include <fmt/format.h>

namespace tidemark {

StreamId GatherLimiter::Place(std::int64_t youngest) {
  while (static_cast<std::int64_t>(places_.size()) <= youngest) {
    places_.push_back(role_.builder.AddStream(fmt::format("limiter {}", places_.size()), StreamKind::copy));
  }
  return places_[static_cast<std::size_t>(youngest)];
}

void GatherLimiter::Freed() {
  if (!on_) {
    return;
  }
  for (std::int64_t older = waiting_; older > 0; --older) {
    role_.builder.Order(Place(older), Place(older - 1), fmt::format("freed before {}", older));
  }
  role_.builder.Order(Place(0), role_.compute, "freed");
  ++waiting_;
}

void GatherLimiter::WaitForOne() {
  if (on_ && waiting_ >= kMostInFlight) {
    role_.builder.Emit(HostSync{Place(--waiting_)});
  }
}

namespace {

/// The queue's length alone.
class QueueLength {
 public:
  explicit QueueLength(const LimiterPattern& pattern) : pattern_(pattern) {}

  std::int64_t value() const { return length_; }

  void Forward() {
    Unshard(pattern_.root);
    for (std::int64_t layer = 0; layer < pattern_.layers; ++layer) {
      Unshard(true);
      length_ += pattern_.reshards_after_forward ? 1 : 0;
    }
  }

  void Backward() {
    Unshard(pattern_.root);
    bool prefetched = pattern_.root && pattern_.prefetches_before;
    Unshard(prefetched);
    for (std::int64_t layer = pattern_.layers - 1; layer >= 0; --layer) {
      Unshard(!prefetched);
      Unshard(pattern_.prefetches_before && layer > 0);
      ++length_;
      Unshard(pattern_.prefetches_after && layer > 0);
      prefetched = pattern_.prefetches_before || pattern_.prefetches_after;
    }
    length_ += pattern_.root ? 1 : 0;
  }

 private:
  void Unshard(bool happens) { length_ -= happens && length_ >= 2 ? 1 : 0; }

  const LimiterPattern& pattern_;
  std::int64_t length_ = 0;
};

}  // namespace

std::int64_t EventsLeft(const LimiterPattern& pattern) {
  QueueLength queue(pattern);
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    queue.Forward();
    queue.Backward();
  }
  return queue.value();
}

}  // namespace tidemark
