// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/time_program.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "base/check.h"

namespace tidemark {
namespace {

class Reducer {
 public:
  Reducer(const Program& program, bool streams_take_turns, std::optional<std::size_t> joint_loop)
      : program_(program), streams_take_turns_(streams_take_turns), joint_loop_(joint_loop) {
    out_.streams = static_cast<std::uint32_t>(program.streams.size());
    out_.events = static_cast<std::uint32_t>(program.events.size());
    out_.event_cause.resize(out_.events, kHost);
    recorded_.resize(out_.events);
    if (streams_take_turns) {
      for (const Stream& stream : program.streams) {
        out_.event_cause.push_back(CauseOf(stream.kind));
      }
      out_.events += out_.streams;
    }
    for (std::uint32_t i = 0; i < out_.streams; ++i) {
      out_.stream_cause.push_back(CauseOf(program.streams[i].kind));
      if (program.streams[i].kind == StreamKind::compute) {
        out_.compute_stream = i;
      }
    }
  }

  TimeProgram Reduce() {
    Range(0, program_.nodes.size());
    return std::move(out_);
  }

 private:
  using Code = Op::Code;
  static constexpr std::size_t kNone = SIZE_MAX;

  void Add(Code code, std::uint8_t detail, std::uint32_t stream, std::uint32_t other) {
    out_.ops.push_back({code, detail, false, stream, other, node_, 0, 0});
    run_ = kNone;
  }

  /// A kernel of the compute stream. From the second in a row on they stand behind an op of them all.
  void AddKernel(Part part) {
    std::vector<Op>& ops = out_.ops;
    const std::size_t begin = run_ != kNone && ops.back().detail == part ? run_ : ops.size();
    Add(Code::kernel, part, out_.compute_stream, 0);
    run_ = begin;
    if (begin + 1 == ops.size()) {
      return;
    }
    if (ops[begin].code == Code::kernel) {
      ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(begin),
                 {Code::kernels, part, false, out_.compute_stream, 1});
    }
    ++ops[begin].other;
  }

  bool Range(std::size_t at, std::size_t end) {
    bool messages = false;
    while (at < end) {
      const std::size_t here = at++;
      if (const auto* repeat = std::get_if<Repeat>(&program_.nodes[here])) {
        const std::size_t slot = out_.ops.size();
        node_ = static_cast<std::uint32_t>(here);
        Add(Code::repeat, 0, 0, 0);
        out_.ops.back().amount = repeat->count;
        out_.ops[slot].joint = Range(at, at + repeat->size);
        out_.ops[slot].other = static_cast<std::uint32_t>(out_.ops.size() - slot - 1);
        messages |= out_.ops[slot].joint;
        at += repeat->size;
        run_ = kNone;
        if (out_.ops[slot].other == 0) {
          out_.ops.pop_back();
        } else if (here == joint_loop_) {
          out_.ops[slot].joint = true;
          out_.counted_loop = slot;
        }
      } else {
        node_ = static_cast<std::uint32_t>(here);
        messages |= Leaf(program_.nodes[here]);
      }
    }
    return messages;
  }

  static Part PartOf(Work work) {
    return work == Work::compute ? kCompute : work == Work::recompute ? kRecompute : kOptimizer;
  }

  /// On the compute stream its duration is part of the step's time, on others it only takes time; where streams take
  /// turns, the compute stream waits for the other one, does the work, and is waited for.
  void Issue(StreamId stream, Part part) {
    const bool compute = stream.index == out_.compute_stream;
    if (compute || !streams_take_turns_) {
      compute ? AddKernel(part) : Add(Code::issue, part, stream.index, 0);
      return;
    }
    const auto reached = static_cast<std::uint32_t>(program_.events.size()) + stream.index;
    const auto wait = [&](std::uint32_t waits, std::uint32_t waited_for) {
      Add(Code::record, 0, waited_for, reached);
      Add(Code::wait, 0, waits, reached);
    };
    wait(out_.compute_stream, stream.index);
    AddKernel(part);
    wait(stream.index, out_.compute_stream);
  }

  bool Leaf(const Node& node) {
    const auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && program_.streams[compute->stream.index].kind == StreamKind::host) {
      Add(Code::host, 0, compute->stream.index, 0);
    } else if (compute != nullptr) {
      Issue(compute->stream, PartOf(compute->work));
    } else if (const auto* scale = std::get_if<Scale>(&node)) {
      Issue(scale->stream, kCompute);
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      Issue(collective->stream, kExposed);
    } else if (const auto* copy = std::get_if<Copy>(&node)) {
      Issue(copy->stream, kHostIdle);
    } else if (const auto* send = std::get_if<Send>(&node)) {
      Add(Code::send, 0, send->stream.index, send->channel.index);
      return true;
    } else if (const auto* recv = std::get_if<Recv>(&node)) {
      Add(Code::recv, 0, recv->stream.index, recv->channel.index);
      return true;
    } else if (const auto* record = std::get_if<Record>(&node)) {
      Cause& cause = out_.event_cause[record->event.index];
      const Cause recorded = CauseOf(program_.streams[record->stream.index].kind);
      TIDEMARK_CHECK(!recorded_[record->event.index] || cause == recorded);
      cause = recorded;
      recorded_[record->event.index] = true;
      Add(Code::record, 0, record->stream.index, record->event.index);
    } else if (const auto* wait = std::get_if<Wait>(&node)) {
      Add(Code::wait, 0, wait->stream.index, wait->event.index);
    } else if (const auto* sync = std::get_if<HostSync>(&node)) {
      Add(sync->stream.valid() ? Code::sync : Code::sync_device, 0, sync->stream.index, 0);
    }
    return false;
  }

  const Program& program_;
  bool streams_take_turns_;
  std::optional<std::size_t> joint_loop_;
  std::uint32_t node_ = 0;
  std::size_t run_ = kNone;  ///< where the kernels begin that the last op is one of
  TimeProgram out_;
  std::vector<bool> recorded_;  ///< per event
};

/// The k-th kernel is issued when the host has come k issues further, and may begin when those before it are done.
void AddUp(Op& all, std::span<const Op> kernels, std::int64_t host_issue) {
  all.amount = 0;
  all.lead = INT64_MIN;
  std::int64_t issued = 0;
  for (const Op& kernel : kernels) {
    issued += host_issue;
    all.lead = std::max(all.lead, issued - all.amount);
    all.amount += kernel.amount;
  }
}

void SetDurations(TimedRole& role, std::span<const Nanos> prices, Nanos host_issue) {
  role.host_issue = host_issue.count();
  std::vector<Op>& ops = role.program.ops;
  for (Op& op : ops) {
    if (op.code != Op::Code::repeat) {
      op.amount = prices[op.price].count();
    }
  }
  for (std::size_t at = 0; at < ops.size(); ++at) {
    if (ops[at].code == Op::Code::kernels) {
      AddUp(ops[at], std::span(ops).subspan(at + 1, ops[at].other), role.host_issue);
    }
  }
}

/// Kernels of ops [at, end), each loop as often as it runs; what the counted one does in an iteration goes to `each`.
std::int64_t BusyIn(const TimeProgram& program, std::size_t at, std::size_t end, std::int64_t& each) {
  std::int64_t busy = 0;
  while (at < end) {
    const Op& op = program.ops[at++];
    if (op.code == Op::Code::kernel) {
      busy += op.amount;
    } else if (op.code == Op::Code::repeat) {
      const std::int64_t body = BusyIn(program, at, at + op.other, each);
      each = at - 1 == program.counted_loop ? body : each;
      busy += body * op.amount;
      at += op.other;
    }
  }
  return busy;
}

}  // namespace

BusyTime BusyOf(const TimedRole& role) {
  BusyTime busy;
  busy.fixed = BusyIn(role.program, 0, role.program.ops.size(), busy.each);
  return busy;
}

TimedStep ReduceToTime(const StepProgram& step, bool streams_take_turns, std::span<const std::size_t> joint_loops) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, std::size_t> mailboxes;
  TimedStep timed;
  for (std::size_t i = 0; i < step.roles.size(); ++i) {
    TimedRole& role = timed.roles.emplace_back();
    role.program =
        Reducer(step.roles[i], streams_take_turns, joint_loops.empty() ? std::nullopt : std::optional(joint_loops[i]))
            .Reduce();
    for (const Channel& channel : step.roles[i].channels) {
      const auto box = mailboxes.try_emplace({channel.from_role, channel.to_role, channel.name}, mailboxes.size());
      role.mailboxes.push_back(box.first->second);
    }
  }
  timed.mailboxes = mailboxes.size();
  return timed;
}

TimedStep ReduceToTime(const StepProgram& step, std::span<const Costs> costs) {
  TIDEMARK_CHECK(costs.size() == step.roles.size() && !costs.empty());
  TimedStep timed = ReduceToTime(step, costs.front().streams_take_turns);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    SetDurations(timed.roles[i], costs[i].device, costs[i].host_issue);
  }
  return timed;
}

void TakePricesOf(const PriceList& list, TimedStep& timed) {
  for (std::size_t i = 0; i < timed.roles.size(); ++i) {
    for (Op& op : timed.roles[i].program.ops) {
      op.price = list.Which(i, op.price);
    }
  }
}

void SetPrices(std::span<const Nanos> prices, const Machine& machine, TimedStep& timed) {
  for (TimedRole& role : timed.roles) {
    SetDurations(role, prices, machine.host_issue);
  }
}

}  // namespace tidemark
