// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/time_program.h"

#include <map>
#include <string>
#include <tuple>

namespace tidemark {
namespace {

Cause CauseOf(StreamKind kind) {
  return kind == StreamKind::collective ? kCollective : kind == StreamKind::peer ? kPeer : kHost;
}

class Reducer {
 public:
  Reducer(const Program& program, const Costs& costs, std::optional<std::size_t> joint_loop)
      : program_(program), costs_(costs), joint_loop_(joint_loop) {
    out_.streams = static_cast<std::uint32_t>(program.streams.size());
    out_.events = static_cast<std::uint32_t>(program.events.size());
    out_.event_cause.resize(out_.events, kHost);
    recorded_.resize(out_.events);
    if (costs.streams_take_turns) {
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

  bool Range(std::size_t at, std::size_t end) {
    bool messages = false;
    while (at < end) {
      const std::size_t here = at++;
      if (const auto* repeat = std::get_if<Repeat>(&program_.nodes[here])) {
        const std::size_t slot = out_.ops.size();
        out_.ops.push_back({Code::repeat, 0, false, 0, 0, repeat->count});
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
        messages |= Leaf(program_.nodes[here], costs_.device[here].count());
      }
    }
    return messages;
  }

  static Part PartOf(Work work) {
    return work == Work::compute ? kCompute : work == Work::recompute ? kRecompute : kOptimizer;
  }

  /// On the compute stream its duration is part of the step's time, on others it only takes time; where streams take
  /// turns, the compute stream waits for the other one, does the work, and is waited for.
  void Issue(StreamId stream, Part part, std::int64_t duration) {
    const bool compute = stream.index == out_.compute_stream;
    if (compute || !costs_.streams_take_turns) {
      out_.ops.push_back({compute ? Code::kernel : Code::issue, part, false, stream.index, 0, duration});
      return;
    }
    const auto reached = static_cast<std::uint32_t>(program_.events.size()) + stream.index;
    const auto wait = [&](std::uint32_t waits, std::uint32_t waited_for) {
      out_.ops.push_back({Code::record, 0, false, waited_for, reached, 0});
      out_.ops.push_back({Code::wait, 0, false, waits, reached, 0});
    };
    wait(out_.compute_stream, stream.index);
    out_.ops.push_back({Code::kernel, part, false, out_.compute_stream, 0, duration});
    wait(stream.index, out_.compute_stream);
  }

  bool Leaf(const Node& node, std::int64_t duration) {
    const auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && program_.streams[compute->stream.index].kind == StreamKind::host) {
      out_.ops.push_back({Code::host, 0, false, compute->stream.index, 0, duration});
    } else if (compute != nullptr) {
      Issue(compute->stream, PartOf(compute->work), duration);
    } else if (const auto* scale = std::get_if<Scale>(&node)) {
      Issue(scale->stream, kCompute, duration);
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      Issue(collective->stream, kExposed, duration);
    } else if (const auto* copy = std::get_if<Copy>(&node)) {
      Issue(copy->stream, kHostIdle, duration);
    } else if (const auto* send = std::get_if<Send>(&node)) {
      out_.ops.push_back({Code::send, 0, false, send->stream.index, send->channel.index, duration});
      return true;
    } else if (const auto* recv = std::get_if<Recv>(&node)) {
      out_.ops.push_back({Code::recv, 0, false, recv->stream.index, recv->channel.index, 0});
      return true;
    } else if (const auto* record = std::get_if<Record>(&node)) {
      Cause& cause = out_.event_cause[record->event.index];
      const Cause recorded = CauseOf(program_.streams[record->stream.index].kind);
      TIDEMARK_CHECK(!recorded_[record->event.index] || cause == recorded);
      cause = recorded;
      recorded_[record->event.index] = true;
      out_.ops.push_back({Code::record, 0, false, record->stream.index, record->event.index, 0});
    } else if (const auto* wait = std::get_if<Wait>(&node)) {
      out_.ops.push_back({Code::wait, 0, false, wait->stream.index, wait->event.index, 0});
    } else if (const auto* sync = std::get_if<HostSync>(&node)) {
      out_.ops.push_back({sync->stream.valid() ? Code::sync : Code::sync_device, 0, false, sync->stream.index, 0, 0});
    }
    return false;
  }

  const Program& program_;
  const Costs& costs_;
  std::optional<std::size_t> joint_loop_;
  TimeProgram out_;
  std::vector<bool> recorded_;  ///< per event
};

}  // namespace

TimeProgram ReduceToTime(const Program& program, const Costs& costs, std::optional<std::size_t> joint_loop) {
  return Reducer(program, costs, joint_loop).Reduce();
}

TimedStep ReduceToTime(const StepProgram& step, std::span<const Costs> costs,
                       std::span<const std::size_t> joint_loops) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, std::size_t> mailboxes;
  TimedStep timed;
  for (std::size_t i = 0; i < step.roles.size(); ++i) {
    TimedRole& role = timed.roles.emplace_back();
    role.program =
        ReduceToTime(step.roles[i], costs[i], joint_loops.empty() ? std::nullopt : std::optional(joint_loops[i]));
    role.host_issue = costs[i].host_issue.count();
    for (const Channel& channel : step.roles[i].channels) {
      const auto box = mailboxes.try_emplace({channel.from_role, channel.to_role, channel.name}, mailboxes.size());
      role.mailboxes.push_back(box.first->second);
    }
  }
  timed.mailboxes = mailboxes.size();
  return timed;
}

}  // namespace tidemark
