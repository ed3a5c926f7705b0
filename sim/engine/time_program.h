// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/quantity.h"
#include "models/machine/machine.h"
#include "sim/cost/cost.h"
#include "sim/cost/price_list.h"
#include "sim/engine/cause.h"
#include "sim/program/program.h"

namespace tidemark {

// A program reduced to what touches time, for the closed form. Its clock is a list of moments and of accumulated
// durations.

struct Op {
  enum class Code : std::uint8_t { kernel, kernels, issue, host, send, recv, record, wait, sync, sync_device, repeat };
  Code code;
  std::uint8_t detail = 0;  ///< kernel, kernels: index into the parts
  bool joint = false;  ///< repeat: iterations are stepped together with other roles', as its body sends or receives
  std::uint32_t stream = 0;
  std::uint32_t other = 0;  ///< event or channel; repeat: ops of the body; kernels: so many ops that follow
  std::uint32_t price = 0;  ///< index of its duration: the program's node that this is made of, or of a PriceList
  std::int64_t amount = 0;  ///< duration in ns, of `host` on the host itself; repeat: count; kernels: of them all
  /// kernels: where the compute stream is so far ahead of the host, or further, none of them waits for the host, and
  /// this op does what they all do. Else it does nothing, and they follow.
  std::int64_t lead = 0;
};

/// Positions in the list of moments.
constexpr std::uint32_t kHostAt = 0, kStreamsAt = 1;
/// Accumulated durations.
enum Part : std::uint8_t { kCompute, kRecompute, kOptimizer, kExposed, kBubble, kHostIdle };
constexpr std::uint32_t kParts = 6;

constexpr Part PartOfIdle(Cause cause) {
  return cause == kCollective ? kExposed : cause == kPeer ? kBubble : kHostIdle;
}

/// A program reduced to what touches time.
struct TimeProgram {
  std::vector<Op> ops;
  std::uint32_t streams = 0, events = 0, compute_stream = 0;
  std::vector<Cause> stream_cause;
  std::vector<Cause> event_cause;           ///< an event is recorded on streams of one kind
  std::optional<std::size_t> counted_loop;  ///< op of the loop that was asked to be joint; nothing: it takes no time

  std::size_t moments() const { return kStreamsAt + streams + events; }
};

struct TimedRole {
  TimeProgram program;
  std::int64_t host_issue = 0;         ///< ns
  std::vector<std::size_t> mailboxes;  ///< by channel of the program: which of the step's it is
};

/// All roles of a step. Both ends of a channel are one mailbox.
struct TimedStep {
  std::vector<TimedRole> roles;
  std::size_t mailboxes = 0;
};

/// A step whose durations are not known yet: 0. Leaves that can take no time and wait for nothing disappear, and loops
/// that are empty then. `streams_take_turns`: see Costs. `joint_loops`: by role, the node of a loop that is stepped
/// jointly though it holds no messages; or none.
TimedStep ReduceToTime(const StepProgram& step, bool streams_take_turns, std::span<const std::size_t> joint_loops = {});

/// The same with durations.
TimedStep ReduceToTime(const StepProgram& step, std::span<const Costs> costs);

/// What the compute stream of a role works at least, as a step cannot be shorter: `each` is that of one iteration of
/// its counted loop, `fixed` of all that the step has. Both in ns.
struct BusyTime {
  std::int64_t fixed = 0, each = 0;
};
BusyTime BusyOf(const TimedRole& role);

/// From then on durations are those of the list, which is of the same step.
void TakePricesOf(const PriceList& list, TimedStep& timed);
/// Puts in what the list says of a machine.
void SetPrices(std::span<const Nanos> prices, const Machine& machine, TimedStep& timed);

}  // namespace tidemark
