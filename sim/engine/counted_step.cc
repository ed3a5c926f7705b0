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
// each part of the step's time is affine in j, and the last role to finish the same. Where it does not, the middle is
// tried.

namespace tidemark {
namespace {

using Values = std::vector<std::int64_t>;

constexpr std::size_t kStepTimes = 8;
using TimeParts = std::array<std::int64_t, kStepTimes>;

TimeParts ToArray(const StepTime& time) {
  return {time.step.count(),
          time.compute.count(),
          time.recompute.count(),
          time.optimizer.count(),
          time.exposed_communication.count(),
          time.bubble.count(),
          time.host.count(),
          time.role};
}

StepTime FromArray(const TimeParts& times) {
  return {Nanos(times[0]), Nanos(times[1]), Nanos(times[2]), Nanos(times[3]),
          Nanos(times[4]), Nanos(times[5]), Nanos(times[6]), times[7]};
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
      : step_(step), ensemble_(step), more_(more), times_(more.size()), choices_(more.size()) {}

  std::optional<std::vector<StepTime>> Run() {
    if (!ReachLoops()) {
      return std::nullopt;
    }
    ensemble_.Skipped(-more_.front());
    if (ensemble_.RegularRounds() > 0) {
      ensemble_.Rounds();
    }
    place_ = ensemble_.Where();
    State at{more_.front(), {}};
    ensemble_.Save(at.values);
    EndAt(0, at.values);
    std::optional<Line> line;
    while (done_ + 1 < more_.size()) {
      Iteration next = Iterated(at.values);
      if (line && line->iteration.choices == next.choices && line->iteration.step == next.step) {
        if (const std::optional<State> far = Follow(*line)) {
          at = *far;
          line.reset();
          continue;
        }
      }
      line = Line{at, next};
      ++at.number;
      at.values = std::move(next.values);
      if (at.number == more_[done_ + 1]) {
        EndAt(done_ + 1, at.values);
      }
    }
    std::vector<StepTime> times;
    times.reserve(times_.size());
    for (const TimeParts& each : times_) {
      times.push_back(FromArray(each));
    }
    return times;
  }

 private:
  /// After so many further iterations.
  struct State {
    std::int64_t number;
    Values values;
  };
  struct Iteration {
    Values values, step;
    std::uint64_t choices = 0;
  };
  /// States from one on, as long as rounds do what the first one does.
  struct Line {
    State from;
    Iteration iteration;
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

  /// What comes of the number with this index, all before it being known.
  void EndAt(std::size_t index, const Values& from) {
    times_[index] = End(from, choices_[index]);
    done_ = index;
  }

  TimeParts End(const Values& from, std::uint64_t& choices) {
    ensemble_.Go(place_);
    ensemble_.Load(from);
    return ToArray(ensemble_.Finish(choices));
  }

  Values At(const Line& line, std::int64_t number) const {
    return Moved(line.from.values, line.iteration.step, number - line.from.number);
  }

  /// Whether the round behind so many iterations does what the line's first one does.
  bool Holds(const Line& line, std::int64_t number) {
    if (line.iteration.values.size() != line.from.values.size()) {
      return false;
    }
    const Iteration last = Iterated(At(line, number));
    return last.choices == line.iteration.choices && last.step == line.iteration.step;
  }

  /// Goes along a line of which two rounds are known, as far as it is seen to reach; nothing where that is no further.
  std::optional<State> Follow(const Line& line) {
    const std::int64_t known = line.from.number + 2;
    std::int64_t far = more_.back();
    while (far > known && !Holds(line, far - 1)) {
      far = known + (far - known) / 2;
    }
    if (far <= known) {
      return std::nullopt;
    }
    // The numbers on the line that are asked for: the first of them, the last, and those between.
    const std::size_t low = more_[done_] >= line.from.number ? done_ : done_ + 1;
    const auto past = std::ranges::upper_bound(more_, far);
    const std::size_t high = static_cast<std::size_t>(past - more_.begin()) - 1;
    if (low > done_ && low <= high) {
      EndAt(low, At(line, more_[low]));
    }
    if (high > low) {
      EndAt(high, At(line, more_[high]));
      Fill(line, low, high);
    }
    return State{far, At(line, far)};
  }

  /// The numbers between two that are known.
  void Fill(const Line& line, std::size_t low, std::size_t high) {
    if (high - low < 2) {
      return;
    }
    if (choices_[low] == choices_[high]) {
      const std::int64_t length = more_[high] - more_[low];
      for (std::size_t part = 0; part < kStepTimes; ++part) {
        const std::int64_t slope = (times_[high][part] - times_[low][part]) / length;  // without a remainder
        for (std::size_t i = low + 1; i < high; ++i) {
          times_[i][part] = times_[low][part] + slope * (more_[i] - more_[low]);
        }
      }
      return;
    }
    const std::size_t middle = low + (high - low) / 2;
    times_[middle] = End(At(line, more_[middle]), choices_[middle]);
    Fill(line, low, middle);
    Fill(line, middle, high);
  }

  const TimedStep& step_;
  Ensemble ensemble_;
  std::span<const std::int64_t> more_;
  std::vector<TimeParts> times_;
  std::vector<std::uint64_t> choices_;  ///< parallel to times_: of what follows the loops
  std::size_t done_ = 0;                ///< times_ up to this one are known
  Ensemble::Place place_;               ///< when the first role is about to leave its loop
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
  TIDEMARK_CHECK(!more.empty() && more.front() >= 0);
  TIDEMARK_CHECK(std::ranges::is_sorted(more, std::ranges::less_equal()) || more.size() == 1);
  return TimesOfCounts(step, more).Run();
}

}  // namespace tidemark
