// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/counted_step.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "sim/engine/ensemble.h"
#include "sim/engine/time_program.h"
#include "sim/program/longer_loop.h"

// Many counts from few runs
// -------------------------
// Let all roles stand before an iteration of their loops after n rounds (ensemble.h), with the clocks at x, and let the
// next round make the choices s and move moments and sums by d. Let the same hold after N rounds. Then (regime.h) every
// round between does the same, and the clocks after n + j rounds are at x + j d. What follows when the first role has
// left its loop is run from both ends: where it makes the same choices there, it makes them everywhere between, and
// each part of the step's time is affine in j. Where it does not, the middle is tried.

namespace tidemark {
namespace {

using Values = std::vector<std::int64_t>;

constexpr std::size_t kStepTimes = 7;
using TimeParts = std::array<std::int64_t, kStepTimes>;

TimeParts ToArray(const StepTime& time) {
  return {time.step.count(),
          time.compute.count(),
          time.recompute.count(),
          time.optimizer.count(),
          time.exposed_communication.count(),
          time.bubble.count(),
          time.host.count()};
}

StepTime FromArray(const TimeParts& times) {
  return {Nanos(times[0]), Nanos(times[1]), Nanos(times[2]), Nanos(times[3]),
          Nanos(times[4]), Nanos(times[5]), Nanos(times[6])};
}

Values Moved(const Values& from, const Values& step, std::int64_t times) {
  Values to = from;
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] += times * step[i];
  }
  return to;
}

/// The times of one CountedStep for ascending numbers of further iterations.
class TimesOfCounts {
 public:
  TimesOfCounts(const TimedStep& step, std::span<const std::int64_t> more)
      : step_(step), ensemble_(step), more_(more), times_(more.size()) {}

  std::optional<std::vector<StepTime>> Run() {
    if (!ReachLoops()) {
      return std::nullopt;
    }
    ensemble_.Skipped(-more_.front());
    if (ensemble_.RegularRounds() > 0) {
      ensemble_.Rounds();
    }
    place_ = ensemble_.Where();
    Values at;
    ensemble_.Save(at);
    std::size_t i = 0;
    Ending ending = EndFrom(at);
    times_[0] = ending.times;
    while (i + 1 < more_.size()) {
      const Line line{i, at, Iterated(at)};
      std::size_t far = more_.size() - 1;
      while (far > i && !ReachesTo(line, far)) {
        far = i + (far - i) / 2;
      }
      if (far > i) {
        Values next = At(line, far);
        const Ending there = EndFrom(next);
        times_[far] = there.times;
        Fill(line, i, ending, far, there);
        at = std::move(next);
        ending = there;
        i = far;
        continue;
      }
      for (std::int64_t n = more_[i]; n < more_[i + 1]; ++n) {
        at = Iterated(at).values;
      }
      ending = EndFrom(at);
      times_[++i] = ending.times;
    }
    std::vector<StepTime> times;
    times.reserve(times_.size());
    for (const TimeParts& each : times_) {
      times.push_back(FromArray(each));
    }
    return times;
  }

 private:
  struct Iteration {
    Values values, step;
    std::uint64_t choices = 0;
  };
  /// States from the number with this index on, as long as rounds do what this one does.
  struct Line {
    std::size_t index;
    const Values& from;
    Iteration iteration;
  };
  struct Ending {
    TimeParts times;
    std::uint64_t choices = 0;
  };

  /// Runs until every role stands before an iteration of its loop; false where that never happens.
  bool ReachLoops() {
    ensemble_.Settle();
    while (!InLoops()) {
      if (ensemble_.Finished()) {
        return false;
      }
      ensemble_.Round();
    }
    return true;
  }

  bool InLoops() {
    for (std::size_t i = 0; i < step_.roles.size(); ++i) {
      const Runner::Place& place = ensemble_.runners()[i].place();
      const auto loop = step_.roles[i].program.counted_loop;
      if (!loop || place.state != Runner::State::boundary || place.loops.back().body != *loop + 1) {
        return false;
      }
    }
    return true;
  }

  Iteration Iterated(const Values& from) {
    ensemble_.Go(place_);
    ensemble_.Skipped(-1);
    ensemble_.Load(from);
    Iteration iteration;
    iteration.choices = ensemble_.Iterate();
    ensemble_.Save(iteration.values);
    iteration.step = iteration.values;
    for (std::size_t i = 0; i < from.size() && from.size() == iteration.step.size(); ++i) {
      iteration.step[i] -= from[i];
    }
    return iteration;
  }

  Ending EndFrom(const Values& from) {
    ensemble_.Go(place_);
    ensemble_.Load(from);
    Ending ending;
    ending.times = ToArray(ensemble_.Finish(ending.choices));
    return ending;
  }

  Values At(const Line& line, std::size_t index) const {
    return Moved(line.from, line.iteration.step, more_[index] - more_[line.index]);
  }

  /// Whether the last round before this number does what the first one does.
  bool ReachesTo(const Line& line, std::size_t index) {
    if (line.iteration.values.size() != line.from.size()) {
      return false;
    }
    const Iteration last = Iterated(Moved(line.from, line.iteration.step, more_[index] - more_[line.index] - 1));
    return last.choices == line.iteration.choices && last.step == line.iteration.step;
  }

  /// The numbers between two that are known.
  void Fill(const Line& line, std::size_t low, const Ending& at_low, std::size_t high, const Ending& at_high) {
    if (high - low < 2) {
      return;
    }
    if (at_low.choices == at_high.choices) {
      const std::int64_t length = more_[high] - more_[low];
      for (std::size_t part = 0; part < kStepTimes; ++part) {
        const std::int64_t slope = (at_high.times[part] - at_low.times[part]) / length;  // without a remainder
        for (std::size_t i = low + 1; i < high; ++i) {
          times_[i][part] = at_low.times[part] + slope * (more_[i] - more_[low]);
        }
      }
      return;
    }
    const std::size_t middle = low + (high - low) / 2;
    const Ending ending = EndFrom(At(line, middle));
    times_[middle] = ending.times;
    Fill(line, low, at_low, middle, ending);
    Fill(line, middle, ending, high, at_high);
  }

  const TimedStep& step_;
  Ensemble ensemble_;
  std::span<const std::int64_t> more_;
  std::vector<TimeParts> times_;
  Ensemble::Place place_;  ///< when the first role is about to leave its loop
};

}  // namespace

std::optional<CountedStep> CountedStep::Of(const StepProgram& low, const StepProgram& high) {
  if (low.roles.size() != high.roles.size()) {
    return std::nullopt;
  }
  CountedStep step;
  for (std::size_t i = 0; i < low.roles.size(); ++i) {
    const std::optional<LongerLoop> longer = FindLongerLoop(low.roles[i], high.roles[i]);
    if (!longer || (i > 0 && longer->difference != step.span_)) {
      return std::nullopt;
    }
    step.span_ = longer->difference;
    step.loops_.push_back(longer->loop);
    step.counts_.push_back(longer->low);
  }
  for (std::size_t i = 0; i < high.roles.size(); ++i) {
    step.memory_.push_back(FoldMemoryAround(high.roles[i], step.loops_[i]));
  }
  return step;
}

TimedStep CountedStep::Reduce(const StepProgram& high, bool streams_take_turns) const {
  TimedStep step = ReduceToTime(high, streams_take_turns, loops_);
  for (std::size_t i = 0; i < step.roles.size(); ++i) {
    TimeProgram& program = step.roles[i].program;
    if (program.counted_loop) {
      program.ops[*program.counted_loop].amount = counts_[i];
    }
  }
  return step;
}

std::optional<std::vector<StepTime>> CountedStep::Times(const TimedStep& step, std::span<const std::int64_t> more) {
  TIDEMARK_CHECK(!more.empty() && more.front() >= 0 && std::ranges::is_sorted(more));
  return TimesOfCounts(step, more).Run();
}

}  // namespace tidemark
