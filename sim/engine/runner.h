// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/engine/clock.h"
#include "sim/engine/regime.h"
#include "sim/engine/time_program.h"

namespace tidemark {

/// Messages under way on one channel: when each arrives, oldest first.
using Mailbox = std::vector<std::int64_t>;

/// One role between the points where it must look at the others.
class Runner {
 public:
  enum class State : std::uint8_t { ready, blocked, boundary, finished };
  struct Loop {
    std::size_t body, end;
    std::int64_t left;  ///< iterations
  };
  /// Where the role stands in its program.
  struct Place {
    std::vector<Loop> loops;  ///< joint ones, the innermost last
    std::size_t at = 0;
    State state = State::ready;
  };

  /// The mailboxes of the role's channels; these and the program must outlive it.
  Runner(const TimedRole& role, std::vector<Mailbox*> boxes)
      : clock_(role.program, role.host_issue), boxes_(std::move(boxes)) {}

  Clock& clock() { return clock_; }
  const Place& place() const { return place_; }
  void Go(const Place& place) { place_ = place; }
  State state() const { return place_.state; }
  /// Of the loop at whose boundary the role stands.
  std::int64_t left() const { return place_.loops.back().left; }
  void Skip(std::int64_t iterations) { place_.loops.back().left -= iterations; }

  /// Leaves a boundary: into the next iteration, or behind the loop.
  void Release();
  /// Goes on to the next boundary, missing message or end. True when something was done.
  bool Advance(RegimeScratch& scratch);

 private:
  bool One(const Op& op, RegimeScratch& scratch);

  Clock clock_;
  std::vector<Mailbox*> boxes_;
  Place place_;
};

}  // namespace tidemark
