// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/quantity.h"
#include "profiler/execute/progress.h"

namespace tidemark {

/// One look at the process of one rank.
struct RankSample {
  std::uint64_t beats = 0;
  RankProgress::State state = RankProgress::State::starting;
  bool stopped = false;  ///< by a signal: SIGSTOP, a debugger
  Nanos processor;       ///< time it has had so far
};

/// Finds the rank that holds up a run, from looks at all ranks.
///
/// A rank stands still where for `timeout` it has neither got on nor used the processor. That a kernel takes long, or
/// the machine is slow, is no reason: a kernel uses the processor. While a rank starts, ends, or waits for others, it
/// may sleep for as long as they need; then it stands still only where a signal has stopped it. Where no rank stands
/// still, but for six times `timeout` all have waited and none has got on, they wait for each other.
class Watchdog {
 public:
  struct Stall {
    std::optional<std::size_t> rank;  ///< nothing: all wait for each other
    bool stopped = false;
    Nanos length;
  };

  explicit Watchdog(Nanos timeout) : timeout_(timeout) {}

  /// A look at `now`, by a clock that never goes back. A rank that is not there, or not any more, is nothing. After a
  /// long time without a look, whatever paused whoever looks, all time counts anew.
  std::optional<Stall> Look(Nanos now, std::span<const std::optional<RankSample>> ranks);

 private:
  struct Seen {
    RankSample sample;
    Nanos beat, use;  ///< when it last got on, and when it last did that or used the processor
  };

  std::optional<Stall> WaitForEachOther(Nanos now) const;

  Nanos timeout_;
  Nanos last_look_;
  std::vector<std::optional<Seen>> seen_;
};

}  // namespace tidemark
