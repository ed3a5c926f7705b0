// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>

#include "sim/engine/closed_form.h"
#include "sim/engine/regime.h"

// Time without unrolling
// ----------------------
// A role's clock is a list of moments: its host, its compute stream, what that stream was told to wait for, every other
// stream, every event. A leaf replaces some moments by the latest of others plus a constant, and adds the idle
// interval it finds to a part of the step. All choices ("which was the latest?") are comparisons of moments.
//
// A Repeat is therefore run a few times only: RunRegime (regime.h) proves from one iteration here and one far ahead that all
// iterations between make the same choices, and leaps over them exactly.
//
// With several roles the joint clock is the list of all their moments and of the messages under way. Loops that send or
// receive are stepped together: a round lets each role run one iteration of its own loop, and rounds repeat as
// iterations do. Rounds in which some role is not at the start of an iteration are simply run.

namespace tidemark {
namespace {

enum Cause : std::uint8_t { kCollective, kPeer, kHost };
constexpr std::uint32_t kCauses = 3;

struct Op {
  enum class Code : std::uint8_t { kernel, issue, send, recv, record, wait, sync, sync_device, repeat };
  Code code;
  std::uint8_t detail = 0;         ///< kernel: index into parts; record: cause
  bool messages = false;           ///< repeat: its body sends or receives
  std::uint32_t stream = 0;
  std::uint32_t other = 0;         ///< event or channel; repeat: ops of the body
  std::int64_t amount = 0;         ///< duration in ns; repeat: count
};

/// Positions in the list of moments.
constexpr std::uint32_t kHostAt = 0, kBusyEndAt = 1, kWaitsAt = 2, kStreamsAt = kWaitsAt + kCauses;
/// Accumulated durations.
enum Part : std::uint8_t { kCompute, kRecompute, kOptimizer, kExposed, kBubble, kHostIdle, kParts };

Cause CauseOf(StreamKind kind) {
  return kind == StreamKind::collective ? kCollective : kind == StreamKind::peer ? kPeer : kHost;
}

/// A program reduced to what touches time.
struct TimeProgram {
  std::vector<Op> ops;
  std::uint32_t streams = 0, events = 0, compute_stream = 0;
  std::vector<Cause> stream_cause;
  std::vector<Cause> event_cause;  ///< an event is recorded on streams of one kind

  std::size_t moments() const { return kStreamsAt + streams + events; }
};

class Reducer {
 public:
  Reducer(const Program& program, const Costs& costs) : program_(program), costs_(costs) {
    out_.streams = static_cast<std::uint32_t>(program.streams.size());
    out_.events = static_cast<std::uint32_t>(program.events.size());
    out_.event_cause.resize(out_.events, kHost);
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
        out_.ops[slot].messages = Range(at, at + repeat->size);
        out_.ops[slot].other = static_cast<std::uint32_t>(out_.ops.size() - slot - 1);
        messages |= out_.ops[slot].messages;
        at += repeat->size;
        if (out_.ops[slot].other == 0) {
          out_.ops.pop_back();
        }
      } else {
        messages |= Leaf(program_.nodes[here], costs_.device[here].count());
      }
    }
    return messages;
  }

  void Kernel(StreamId stream, Work work, std::int64_t duration) {
    const bool compute = stream.index == out_.compute_stream;
    const auto part = static_cast<std::uint8_t>(work == Work::compute     ? kCompute
                                                : work == Work::recompute ? kRecompute
                                                                          : kOptimizer);
    out_.ops.push_back({compute ? Code::kernel : Code::issue, part, false, stream.index, 0, duration});
  }

  bool Leaf(const Node& node, std::int64_t duration) {
    if (const auto* compute = std::get_if<Compute>(&node)) {
      Kernel(compute->stream, compute->work, duration);
    } else if (const auto* scale = std::get_if<Scale>(&node)) {
      Kernel(scale->stream, Work::compute, duration);
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      out_.ops.push_back({Code::issue, 0, false, collective->stream.index, 0, duration});
    } else if (const auto* copy = std::get_if<Copy>(&node)) {
      out_.ops.push_back({Code::issue, 0, false, copy->stream.index, 0, duration});
    } else if (const auto* send = std::get_if<Send>(&node)) {
      out_.ops.push_back({Code::send, 0, false, send->stream.index, send->channel.index, duration});
      return true;
    } else if (const auto* recv = std::get_if<Recv>(&node)) {
      out_.ops.push_back({Code::recv, 0, false, recv->stream.index, recv->channel.index, 0});
      return true;
    } else if (const auto* record = std::get_if<Record>(&node)) {
      out_.event_cause[record->event.index] = CauseOf(program_.streams[record->stream.index].kind);
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
  TimeProgram out_;
};

/// Moments and parts of one role, and how each op moves them. `choices` is a running hash of every comparison.
class Clock {
 public:
  Clock(TimeProgram program, std::int64_t host_issue) : program_(std::move(program)), host_issue_(host_issue) {
    values_.resize(program_.moments() + kParts);
  }

  const TimeProgram& program() const { return program_; }
  std::vector<std::int64_t>& values() { return values_; }
  std::size_t moments() const { return program_.moments(); }
  std::uint64_t choices = 0;

  /// Ops [at, end) without messages.
  void Run(std::size_t at, std::size_t end, RegimeScratch& scratch);

  void Do(const Op& op);
  std::int64_t Send(const Op& op) {
    IssueOn(op.stream, op.amount);
    return Stream(op.stream);
  }
  void Recv(const Op& op, std::int64_t arrival) {
    IssueOn(op.stream, 0);
    Stream(op.stream) = Later(Stream(op.stream), arrival);
  }

  std::int64_t DeviceEnd() {
    std::int64_t end = 0;
    for (std::uint32_t i = 1; i < program_.streams; ++i) {
      end = Later(end, Stream(i));
    }
    return end;
  }
  std::int64_t End() { return Later(DeviceEnd(), values_[kHostAt]); }
  StepTime Time();

 private:
  struct Latest {
    std::int64_t time;
    std::uint32_t cause;
  };

  std::int64_t& Stream(std::uint32_t stream) { return values_[kStreamsAt + stream]; }
  std::int64_t& Event(std::uint32_t event) { return values_[kStreamsAt + program_.streams + event]; }
  std::int64_t& PartOf(std::uint8_t part) { return values_[program_.moments() + part]; }

  /// Every choice passes here: the hash tells two iterations apart that chose differently.
  void Chose(std::uint64_t choice) { choices = (choices ^ (choice + 1)) * 0x9e3779b97f4a7c15ULL; }

  std::int64_t Later(std::int64_t a, std::int64_t b) {
    Chose(b > a ? 1 : 0);
    return std::max(a, b);
  }

  void IssueOn(std::uint32_t stream, std::int64_t duration) {
    values_[kHostAt] += host_issue_;
    Stream(stream) = Later(values_[kHostAt], Stream(stream)) + duration;
  }

  /// The latest of `count` moments with their causes; of equal ones the lowest cause.
  Latest Last(const Latest* candidates, std::size_t count) {
    Latest latest = candidates[0];
    for (std::size_t i = 1; i < count; ++i) {
      const Latest& next = candidates[i];
      const bool later = next.time > latest.time || (next.time == latest.time && next.cause < latest.cause);
      Chose(later ? 3 : 2);
      if (later) {
        latest = next;
      }
    }
    return latest;
  }

  void Kernel(const Op& op);

  TimeProgram program_;
  std::int64_t host_issue_;
  std::vector<std::int64_t> values_;           ///< moments, then parts
};

void Clock::Kernel(const Op& op) {
  values_[kHostAt] += host_issue_;
  const std::array<Latest, kCauses + 1> candidates = {{{values_[kWaitsAt + kCollective], kCollective},
                                                       {values_[kWaitsAt + kPeer], kPeer},
                                                       {values_[kWaitsAt + kHost], kHost},
                                                       {values_[kHostAt], kHost}}};
  const Latest wait = Last(candidates.data(), candidates.size());
  std::int64_t& busy_end = values_[kBusyEndAt];
  const std::int64_t start = Later(busy_end, wait.time);
  PartOf(static_cast<std::uint8_t>(kExposed + wait.cause)) += start - busy_end;
  PartOf(op.detail) += op.amount;
  busy_end = start + op.amount;
  std::fill_n(values_.begin() + kWaitsAt, kCauses, 0);
  Stream(op.stream) = busy_end;
}

void Clock::Do(const Op& op) {
  switch (op.code) {
    case Op::Code::kernel:
      return Kernel(op);
    case Op::Code::issue:
      return IssueOn(op.stream, op.amount);
    case Op::Code::record:
      Event(op.other) = Stream(op.stream);
      return;
    case Op::Code::wait:
      Stream(op.stream) = Later(Stream(op.stream), Event(op.other));
      if (op.stream == program_.compute_stream) {
        std::int64_t& wait = values_[kWaitsAt + program_.event_cause[op.other]];
        wait = Later(wait, Event(op.other));
      }
      return;
    case Op::Code::sync:
      values_[kHostAt] = Later(values_[kHostAt], Stream(op.stream));
      return;
    case Op::Code::sync_device:
      values_[kHostAt] = Later(values_[kHostAt], DeviceEnd());
      return;
    case Op::Code::send:
    case Op::Code::recv:
    case Op::Code::repeat:
      break;
  }
  TIDEMARK_CHECK(false && "messages and loops are not single ops");
}

/// One loop without messages, as RunRegime sees it.
class LoopSystem {
 public:
  LoopSystem(Clock& clock, std::size_t at, std::size_t end, RegimeScratch& scratch)
      : clock_(clock), at_(at), end_(end), scratch_(scratch), outer_choices_(clock.choices) {}

  std::size_t moments() const { return clock_.moments(); }
  void Save(std::vector<std::int64_t>& values) const { values = clock_.values(); }
  void Load(const std::vector<std::int64_t>& values) { clock_.values() = values; }
  std::uint64_t Iterate() {
    clock_.choices = 0;
    clock_.Run(at_, end_, scratch_);
    return clock_.choices;
  }
  void Skipped(std::int64_t) {}
  /// The loop as one choice of the surrounding iteration.
  void Finish(std::uint64_t choices) { clock_.choices = (outer_choices_ ^ choices) * 0x9e3779b97f4a7c15ULL; }

 private:
  Clock& clock_;
  std::size_t at_, end_;
  RegimeScratch& scratch_;
  std::uint64_t outer_choices_;
};

void Clock::Run(std::size_t at, std::size_t end, RegimeScratch& scratch) {
  while (at < end) {
    const Op& op = program_.ops[at++];
    if (op.code != Op::Code::repeat) {
      Do(op);
      continue;
    }
    LoopSystem loop(*this, at, at + op.other, scratch);
    loop.Finish(RunRegime(loop, op.amount, scratch));
    at += op.other;
  }
}

StepTime Clock::Time() {
  std::vector<Latest> ends;
  for (std::uint32_t i = 1; i < program_.streams; ++i) {
    ends.push_back({Stream(i), program_.stream_cause[i]});
  }
  ends.push_back({values_[kHostAt], kHost});
  const Latest last = Last(ends.data(), ends.size());
  PartOf(static_cast<std::uint8_t>(kExposed + last.cause)) += last.time - values_[kBusyEndAt];
  const auto part = [&](std::uint8_t which) { return Nanos(PartOf(which)); };
  return {Nanos(last.time), part(kCompute), part(kRecompute), part(kOptimizer),
          part(kExposed),   part(kBubble),  part(kHostIdle)};
}

/// Messages under way on one channel: when each arrives, oldest first.
using Mailbox = std::vector<std::int64_t>;

/// One role between the points where it must look at the others.
class Runner {
 public:
  enum class State : std::uint8_t { ready, blocked, boundary, finished };

  Runner(Clock clock, std::vector<Mailbox*> boxes) : clock_(std::move(clock)), boxes_(std::move(boxes)) {}

  Clock& clock() { return clock_; }
  State state() const { return state_; }
  /// Iterations left of the loop at whose boundary the role stands.
  std::int64_t left() const { return loops_.back().left; }
  void Skip(std::int64_t iterations) { loops_.back().left -= iterations; }

  /// Leaves a boundary: into the next iteration, or behind the loop.
  void Release() {
    Loop& loop = loops_.back();
    if (loop.left == 0) {
      at_ = loop.end;
      loops_.pop_back();
    } else {
      --loop.left;
      at_ = loop.body;
    }
    state_ = State::ready;
  }

  /// Goes on to the next boundary, missing message or end. True when something was done.
  bool Advance(RegimeScratch& scratch) {
    bool moved = false;
    const std::vector<Op>& ops = clock_.program().ops;
    while (state_ == State::ready || state_ == State::blocked) {
      if (!loops_.empty() && at_ == loops_.back().end) {
        state_ = State::boundary;
      } else if (at_ == ops.size()) {
        state_ = State::finished;
      } else if (!One(ops[at_], scratch)) {
        return moved;
      }
      moved = true;
    }
    return moved;
  }

 private:
  struct Loop {
    std::size_t body, end;
    std::int64_t left;
  };

  bool One(const Op& op, RegimeScratch& scratch) {
    if (op.code == Op::Code::recv) {
      Mailbox& box = *boxes_[op.other];
      if (box.empty()) {
        state_ = State::blocked;
        return false;
      }
      clock_.Recv(op, box.front());
      box.erase(box.begin());
    } else if (op.code == Op::Code::send) {
      boxes_[op.other]->push_back(clock_.Send(op));
    } else if (op.code == Op::Code::repeat && op.messages) {
      loops_.push_back({at_ + 1, at_ + 1 + op.other, op.amount});
      at_ = loops_.back().end;
      state_ = State::ready;
      return true;
    } else if (op.code == Op::Code::repeat) {
      clock_.Run(at_, at_ + 1 + op.other, scratch);
      at_ += op.other;
    } else {
      clock_.Do(op);
    }
    ++at_;
    state_ = State::ready;
    return true;
  }

  Clock clock_;
  std::vector<Mailbox*> boxes_;
  std::vector<Loop> loops_;
  std::size_t at_ = 0;
  State state_ = State::ready;
};

/// All roles together. As a system of RunRegime, one iteration is a round.
class Ensemble {
 public:
  Ensemble(const StepProgram& step, std::span<const Costs> costs) {
    for (std::size_t i = 0; i < step.roles.size(); ++i) {
      const Program& program = step.roles[i];
      std::vector<Mailbox*> boxes;
      for (const Channel& channel : program.channels) {
        boxes.push_back(&mail_[{channel.from_role, channel.to_role, channel.name}]);
      }
      runners_.emplace_back(Clock(Reducer(program, costs[i]).Reduce(), costs[i].host_issue.count()), std::move(boxes));
    }
  }

  StepTime Run() {
    Settle();
    while (!Finished()) {
      if (const std::int64_t rounds = RegularRounds(); rounds > 0) {
        RunRegime(*this, rounds, scratch_);
      } else {
        Round();
      }
    }
    Runner* last = &runners_.front();
    for (Runner& runner : runners_) {
      if (runner.clock().End() > last->clock().End()) {
        last = &runner;
      }
    }
    return last->clock().Time();
  }

  std::size_t moments() const { return moments_; }
  void Save(std::vector<std::int64_t>& values) {
    values.clear();
    for (const auto& [key, box] : mail_) {
      values.insert(values.end(), box.begin(), box.end());
    }
    for (Runner& runner : runners_) {
      values.insert(values.end(), runner.clock().values().begin(),
                    runner.clock().values().begin() + static_cast<std::ptrdiff_t>(runner.clock().moments()));
    }
    moments_ = values.size();
    for (Runner& runner : runners_) {
      values.insert(values.end(), runner.clock().values().end() - kParts, runner.clock().values().end());
    }
  }
  void Load(const std::vector<std::int64_t>& values) {
    auto at = values.begin();
    for (auto& [key, box] : mail_) {
      std::copy_n(at, box.size(), box.begin());
      at += static_cast<std::ptrdiff_t>(box.size());
    }
    for (Runner& runner : runners_) {
      std::copy_n(at, runner.clock().moments(), runner.clock().values().begin());
      at += static_cast<std::ptrdiff_t>(runner.clock().moments());
    }
    for (Runner& runner : runners_) {
      std::copy_n(at, kParts, runner.clock().values().end() - kParts);
      at += kParts;
    }
  }
  std::uint64_t Iterate() {
    for (Runner& runner : runners_) {
      runner.clock().choices = 0;
    }
    Round();
    std::uint64_t choices = 0;
    for (Runner& runner : runners_) {
      choices = (choices ^ runner.clock().choices) * 0x9e3779b97f4a7c15ULL;
    }
    for (const auto& [key, box] : mail_) {
      choices = (choices ^ box.size()) * 0x9e3779b97f4a7c15ULL;
    }
    return choices;
  }
  void Skipped(std::int64_t rounds) {
    for (Runner& runner : runners_) {
      if (runner.state() == Runner::State::boundary) {
        runner.Skip(rounds);
      }
    }
  }

 private:
  bool Finished() const {
    return std::all_of(runners_.begin(), runners_.end(),
                       [](const Runner& runner) { return runner.state() == Runner::State::finished; });
  }

  /// How many rounds only repeat bodies: every role that is not finished stands before an iteration.
  std::int64_t RegularRounds() const {
    std::int64_t rounds = INT64_MAX;
    for (const Runner& runner : runners_) {
      if (runner.state() != Runner::State::finished) {
        rounds = std::min(rounds, runner.state() == Runner::State::boundary ? runner.left() : 0);
      }
    }
    return rounds;
  }

  void Round() {
    bool released = false;
    for (Runner& runner : runners_) {
      if (runner.state() == Runner::State::boundary) {
        runner.Release();
        released = true;
      }
    }
    TIDEMARK_CHECK(released && "all roles wait for messages that nobody sends");
    Settle();
  }

  /// Lets every role go as far as it can; messages flow both ways, so sweeps alternate in direction.
  void Settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Runner& runner : runners_) {
        moved |= runner.Advance(scratch_);
      }
      for (auto runner = runners_.rbegin(); runner != runners_.rend(); ++runner) {
        moved |= runner->Advance(scratch_);
      }
    }
  }

  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, Mailbox> mail_;
  std::vector<Runner> runners_;
  RegimeScratch scratch_;
  std::size_t moments_ = 0;
};

}  // namespace

StepTime FoldTime(const StepProgram& step, std::span<const Costs> costs) { return Ensemble(step, costs).Run(); }

Evaluation EvaluateClosedForm(const StepProgram& step, std::span<const Costs> costs) {
  Evaluation evaluation;
  for (const Program& program : step.roles) {
    evaluation.roles.push_back(FoldMemory(program));
  }
  evaluation.time = FoldTime(step, costs);
  return evaluation;
}

}  // namespace tidemark
