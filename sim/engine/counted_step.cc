// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/counted_step.h"

#include <algorithm>
#include <array>
#include <variant>

#include "base/check.h"
#include "sim/engine/clock.h"
#include "sim/engine/regime.h"

// Many counts from few runs
// -------------------------
// Let the loop be about to run an iteration after n of them have run, with the clock at x, and let it make the choices
// s and move moments and sums by d. Let the same hold after N of them. Then (regime.h) every iteration between does the
// same, and the clock after n + j iterations is x + j d. What lies behind the loop is run from both ends: where it
// makes the same choices there, it makes them everywhere between, and each part of the step's time is affine in j.
// Where it does not, the middle is tried.

namespace tidemark {
namespace {

using Values = std::vector<std::int64_t>;

bool SameBuffers(const Buffer& a, const Buffer& b) {
  return a.category == b.category && a.place == b.place && a.resident == b.resident && a.bytes() == b.bytes() &&
         a.count() == b.count();
}

/// Whether two nodes do the same to memory, whichever members of buffers they name.
bool SameForMemory(const Node& a, const Node& b) {
  if (a.index() != b.index()) {
    return false;
  }
  if (const auto* alloc = std::get_if<Alloc>(&a)) {
    return alloc->buffer.buffer == std::get<Alloc>(b).buffer.buffer;
  }
  if (const auto* free = std::get_if<Free>(&a)) {
    return free->buffer.buffer == std::get<Free>(b).buffer.buffer;
  }
  if (const auto* begin = std::get_if<Begin>(&a)) {
    return begin->phase == std::get<Begin>(b).phase;
  }
  if (const auto* repeat = std::get_if<Repeat>(&a)) {
    return repeat->size == std::get<Repeat>(b).size;
  }
  return true;
}

/// The outermost loop that runs more often in `high`; nothing where that is not all that tells them apart.
std::optional<std::size_t> FindLoop(const Program& low, const Program& high) {
  if (low.nodes.size() != high.nodes.size() || !std::ranges::equal(low.buffers, high.buffers, SameBuffers) ||
      !std::ranges::equal(low.nodes, high.nodes, SameForMemory)) {
    return std::nullopt;
  }
  std::optional<std::size_t> found;
  std::size_t end_of_outermost = 0;
  for (std::size_t i = 0; i < low.nodes.size(); ++i) {
    const auto* repeat = std::get_if<Repeat>(&low.nodes[i]);
    if (repeat == nullptr) {
      continue;
    }
    const bool outermost = i >= end_of_outermost;
    if (outermost) {
      end_of_outermost = i + 1 + repeat->size;
    }
    if (repeat->count != std::get<Repeat>(high.nodes[i]).count) {
      if (found || !outermost || repeat->count > std::get<Repeat>(high.nodes[i]).count) {
        return std::nullopt;
      }
      found = i;
    }
  }
  return found;
}

bool SameOps(const Op& a, const Op& b) {
  return a.code == b.code && a.detail == b.detail && a.stream == b.stream && a.other == b.other && a.amount == b.amount;
}

/// The same of what takes time.
std::optional<std::size_t> FindLoop(const TimeProgram& low, const TimeProgram& high) {
  if (low.ops.size() != high.ops.size() || low.streams != high.streams || low.events != high.events ||
      low.stream_cause != high.stream_cause || low.event_cause != high.event_cause) {
    return std::nullopt;
  }
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < low.ops.size(); ++i) {
    if (SameOps(low.ops[i], high.ops[i])) {
      continue;
    }
    Op as_low = high.ops[i];
    as_low.amount = low.ops[i].amount;
    if (found || low.ops[i].code != Op::Code::repeat || !SameOps(low.ops[i], as_low)) {
      return std::nullopt;
    }
    found = i;
  }
  return found;
}

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

/// TimeParts of one CountedStep for ascending counts.
class TimesOfCounts {
 public:
  TimesOfCounts(const TimeProgram& program, std::size_t loop, std::int64_t host_issue,
                std::span<const std::int64_t> counts)
      : clock_(program, host_issue),
        body_(loop + 1),
        behind_(body_ + program.ops[loop].other),
        counts_(counts),
        times_(counts.size()) {}

  std::vector<TimeParts> Run() {
    clock_.Run(0, body_ - 1, scratch_);
    Values at = clock_.values();
    for (std::int64_t i = 0; i < counts_.front(); ++i) {  // a few, as a rule
      at = Iterated(at).values;
    }
    std::size_t i = 0;
    Ending ending = EndFrom(at);
    times_[0] = ending.times;
    while (i + 1 < counts_.size()) {
      const Line line{i, at, Iterated(at)};
      std::size_t far = counts_.size() - 1;
      while (far > i && !ReachesTo(line, far)) {
        far = i + (far - i) / 2;
      }
      if (far > i) {
        at = At(line, far);
        const Ending there = EndFrom(at);
        times_[far] = there.times;
        Fill(line, i, ending, far, there);
        ending = there;
        i = far;
        continue;
      }
      for (std::int64_t n = counts_[i]; n < counts_[i + 1]; ++n) {
        at = Iterated(at).values;
      }
      ending = EndFrom(at);
      times_[++i] = ending.times;
    }
    return std::move(times_);
  }

 private:
  struct Iteration {
    Values values, step;
    std::uint64_t choices = 0;
  };
  /// States from the count with this index on, as long as iterations do what this one does.
  struct Line {
    std::size_t index;
    const Values& from;
    Iteration iteration;
  };
  struct Ending {
    TimeParts times;
    std::uint64_t choices = 0;
  };

  Iteration Iterated(const Values& from) {
    clock_.values() = from;
    clock_.choices = 0;
    clock_.Run(body_, behind_, scratch_);
    return {clock_.values(), Moved(clock_.values(), from, -1), clock_.choices};
  }

  Ending EndFrom(const Values& from) {
    clock_.values() = from;
    clock_.choices = 0;
    clock_.Run(behind_, clock_.program().ops.size(), scratch_);
    const TimeParts times = ToArray(clock_.Time());
    return {times, clock_.choices};
  }

  Values At(const Line& line, std::size_t index) const {
    return Moved(line.from, line.iteration.step, counts_[index] - counts_[line.index]);
  }

  /// Whether the last iteration before this count does what the first one does.
  bool ReachesTo(const Line& line, std::size_t index) {
    const Iteration last = Iterated(Moved(line.from, line.iteration.step, counts_[index] - counts_[line.index] - 1));
    return last.choices == line.iteration.choices && last.step == line.iteration.step;
  }

  /// The counts between two that are known.
  void Fill(const Line& line, std::size_t low, const Ending& at_low, std::size_t high, const Ending& at_high) {
    if (high - low < 2) {
      return;
    }
    if (at_low.choices == at_high.choices) {
      const std::int64_t length = counts_[high] - counts_[low];
      for (std::size_t i = low + 1; i < high; ++i) {
        for (std::size_t part = 0; part < kStepTimes; ++part) {
          const std::int64_t slope = (at_high.times[part] - at_low.times[part]) / length;  // without a remainder
          times_[i][part] = at_low.times[part] + slope * (counts_[i] - counts_[low]);
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

  Clock clock_;
  std::size_t body_, behind_;
  std::span<const std::int64_t> counts_;
  std::vector<TimeParts> times_;
  RegimeScratch scratch_;
};

}  // namespace

std::optional<CountedStep> CountedStep::Of(const StepProgram& low, std::span<const Costs> costs_of_low,
                                           const StepProgram& high, std::span<const Costs> costs_of_high) {
  if (low.roles.size() != 1 || high.roles.size() != 1) {
    return std::nullopt;
  }
  const auto loop = FindLoop(low.roles.front(), high.roles.front());
  TimeProgram time = ReduceToTime(low.roles.front(), costs_of_low.front());
  const auto time_loop = FindLoop(time, ReduceToTime(high.roles.front(), costs_of_high.front()));
  if (!loop || !time_loop) {
    return std::nullopt;
  }
  CountedStep step;
  step.low_ = std::get<Repeat>(low.roles.front().nodes[*loop]).count;
  step.high_ = std::get<Repeat>(high.roles.front().nodes[*loop]).count;
  step.memory_ = FoldMemoryAround(low.roles.front(), *loop);
  step.time_ = std::move(time);
  step.loop_ = *time_loop;
  step.host_issue_ = costs_of_low.front().host_issue.count();
  return step;
}

std::vector<Evaluation> CountedStep::Evaluate(std::span<const std::int64_t> counts) const {
  std::vector<Evaluation> evaluations;
  if (counts.empty()) {
    return evaluations;
  }
  TIDEMARK_CHECK(counts.front() > 0 && std::ranges::is_sorted(counts));
  const std::vector<TimeParts> times = TimesOfCounts(time_, loop_, host_issue_, counts).Run();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    evaluations.push_back({{memory_.Peak(counts[i])}, FromArray(times[i])});
  }
  return evaluations;
}

}  // namespace tidemark
