// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "sim/engine/clock.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/regime.h"

// Time without unrolling
// ----------------------
// A role's clock is a list of moments: its host, every stream, every event. A leaf replaces some moments by the latest
// of others plus a constant, and adds the idle interval of the compute stream that it finds to a part of the step. All
// choices ("which was the latest?") are comparisons of moments.
//
// A Repeat is therefore run a few times only: RunRegime (regime.h) proves from one iteration here and one far ahead
// that all iterations between make the same choices, and leaps over them exactly.
//
// With several roles the joint clock is the list of all their moments and of the messages under way. Loops that send or
// receive are stepped together: a round lets each role run one iteration of its own loop, and rounds repeat as
// iterations do. Which messages a role finds does not depend on times, only on the order of its own and its peers'
// nodes: a receive waits until its message exists. Rounds in which some role is not at the start of an iteration are
// simply run.

namespace tidemark {
namespace {

/// Messages under way on one channel: when each arrives, oldest first.
using Mailbox = std::vector<std::int64_t>;

/// One role between the points where it must look at the others.
class Runner {
 public:
  enum class State : std::uint8_t { ready, blocked, boundary, finished };

  Runner(Clock clock, std::vector<Mailbox*> boxes) : clock_(std::move(clock)), boxes_(std::move(boxes)) {}

  Clock& clock() { return clock_; }
  State state() const { return state_; }
  /// Where the role stands in its program, as a part of what a round did.
  std::uint64_t place() const { return at_ * 4 + static_cast<std::uint64_t>(state_); }
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
      runners_.emplace_back(Clock(ReduceToTime(program, costs[i]), costs[i].host_issue.count()), std::move(boxes));
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
    TIDEMARK_CHECK(values.size() == Size());
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
      choices = MixChoices(choices, runner.clock().choices);
      choices = MixChoices(choices, runner.place());
    }
    for (const auto& [key, box] : mail_) {
      choices = MixChoices(choices, box.size());
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
  std::size_t Size() {
    std::size_t size = 0;
    for (const auto& [key, box] : mail_) {
      size += box.size();
    }
    for (Runner& runner : runners_) {
      size += runner.clock().values().size();
    }
    return size;
  }

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
