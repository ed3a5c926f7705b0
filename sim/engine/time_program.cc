// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/time_program.h"

#include <map>
#include <string>
#include <tuple>

#include "base/check.h"

namespace tidemark {
namespace {

Cause CauseOf(StreamKind kind) {
  return kind == StreamKind::collective ? kCollective : kind == StreamKind::peer ? kPeer : kHost;
}

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

  void Add(Code code, std::uint8_t detail, std::uint32_t stream, std::uint32_t other) {
    out_.ops.push_back({code, detail, false, stream, other, node_, 0});
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
      Add(compute ? Code::kernel : Code::issue, part, stream.index, 0);
      return;
    }
    const auto reached = static_cast<std::uint32_t>(program_.events.size()) + stream.index;
    const auto wait = [&](std::uint32_t waits, std::uint32_t waited_for) {
      Add(Code::record, 0, waited_for, reached);
      Add(Code::wait, 0, waits, reached);
    };
    wait(out_.compute_stream, stream.index);
    Add(Code::kernel, part, out_.compute_stream, 0);
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
  TimeProgram out_;
  std::vector<bool> recorded_;  ///< per event
};

}  // namespace

TimedStep ReduceToTime(const StepProgram& step, bool streams_take_turns, std::span<const std::size_t> joint_loops) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, std::size_t> mailboxes;
  TimedStep timed;
  for (std::size_t i = 0; i < step.roles.size(); ++i) {
    TimedRole& role = timed.roles.emplace_back();
    role.program = Reducer(step.roles[i], streams_take_turns,
                           joint_loops.empty() ? std::nullopt : std::optional(joint_loops[i]))
                       .Reduce();
    for (const Channel& channel : step.roles[i].channels) {
      const auto box = mailboxes.try_emplace({channel.from_role, channel.to_role, channel.name}, mailboxes.size());
      role.mailboxes.push_back(box.first->second);
    }
  }
  timed.mailboxes = mailboxes.size();
  return timed;
}

void SetCosts(TimedStep& timed, std::span<const Costs> costs) {
  TIDEMARK_CHECK(timed.roles.size() == costs.size());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    timed.roles[i].host_issue = costs[i].host_issue.count();
    for (Op& op : timed.roles[i].program.ops) {
      if (op.code != Op::Code::repeat) {
        op.amount = costs[i].device[op.node].count();
      }
    }
  }
}

TimedStep ReduceToTime(const StepProgram& step, std::span<const Costs> costs) {
  TIDEMARK_CHECK(!costs.empty());
  TimedStep timed = ReduceToTime(step, costs.front().streams_take_turns);
  SetCosts(timed, costs);
  return timed;
}

}  // namespace tidemark
