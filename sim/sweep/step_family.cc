// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/step_family.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "models/job/throughput.h"
#include "models/job/validate.h"
#include "sim/cost/cost.h"
#include "sim/engine/closed_form.h"
#include "sim/lower/window.h"
#include "sim/predict/communication.h"

namespace tidemark {
namespace {

/// Per rank, mean over the roles.
double ModelFlops(const LoweredRun& lowered) {
  double flops = 0;
  for (const Program& role : lowered.usual().roles) {
    flops += CountFlops(role).model / static_cast<double>(lowered.program.roles.size());
  }
  return flops;
}

/// The first of those that allocate most.
template <class PeakOf>
std::size_t WorstRole(std::size_t roles, PeakOf peak_of) {
  std::size_t worst = 0;
  Bytes most = peak_of(0).allocated;
  for (std::size_t role = 1; role < roles; ++role) {
    if (const Bytes allocated = peak_of(role).allocated; allocated > most) {
      most = allocated;
      worst = role;
    }
  }
  return worst;
}

/// Whether a window has the same runs, but for the length of one: then what is written of it differs in a count only.
bool SameWindows(const std::vector<WindowRun>& a, const std::vector<WindowRun>& b) {
  std::size_t lengths = 0;
  const auto same = [&](const WindowRun& x, const WindowRun& y) {
    lengths += x.count == y.count ? 0 : 1;
    return x.place.pending == y.place.pending && x.place.reduced == y.place.reduced &&
           x.place.synchronises == y.place.synchronises && x.place.last == y.place.last;
  };
  return std::ranges::equal(a, b, same) && lengths <= 1;
}

}  // namespace

StepFamily::StepFamily(Job job, std::span<const std::int64_t> counts)
    : job_(std::move(job)), counts_(counts.begin(), counts.end()) {
  TIDEMARK_CHECK(std::ranges::is_sorted(counts_));
  std::vector<std::size_t> left(counts_.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  while (!left.empty()) {
    Result<LoweredRun> high = Lowered(left.back());
    if (!high) {
      Refuse(left.back(), high.error());
      left.pop_back();
      continue;
    }
    bool alike = false;
    while (left.size() > 1 && !alike) {
      Result<LoweredRun> low = Lowered(left.front());
      if (!low) {
        Refuse(left.front(), low.error());
        left.erase(left.begin());
        continue;
      }
      alike = AddAlike(left, *low, *high);
      if (!alike) {
        AddOne(left.front(), std::move(*low));
        left.erase(left.begin());
      }
    }
    if (!alike) {
      AddOne(left.back(), std::move(*high));
      left.pop_back();
    }
  }
}

std::int64_t StepFamily::Longest() const {
  std::int64_t longest = 0;
  for (const StepFacts& step : steps_) {
    longest = std::max(longest, counts_[step.count]);
  }
  return longest;
}

std::vector<StepTime> StepFamily::Price(const Machine& machine) const {
  TIDEMARK_CHECK(machine.devices_per_node == job_.machine.devices_per_node);
  std::vector<StepTime> times(steps_.size());
  for (const Piece& piece : pieces_) {
    const std::vector<Costs> costs = PriceAll(piece.low.usual(), machine);
    if (!piece.counted) {
      times[piece.first] = FoldTime(piece.low.program, costs);
      continue;
    }
    const auto counted = piece.counted->Times(piece.low.program, costs, piece.more);
    for (std::size_t i = 0; i < piece.steps; ++i) {
      times[piece.first + i] = counted ? (*counted)[i] : PriceAlone(steps_[piece.first + i].count, machine);
    }
  }
  return times;
}

Result<LoweredRun> StepFamily::Lowered(std::size_t count) {
  constexpr StepRun kSteady;
  job_.accumulation_steps = counts_[count];
  TIDEMARK_TRY(Validate(job_));
  TIDEMARK_ASSIGN(std::vector<LoweredRun> runs, LowerRuns(job_, std::span(&kSteady, 1)));
  return std::move(runs.front());
}

void StepFamily::AddOne(std::size_t count, LoweredRun lowered) {
  std::vector<MemoryPeak> peaks;
  for (const Program& role : lowered.program.roles) {
    peaks.push_back(FoldMemory(role));
  }
  const std::size_t worst = WorstRole(peaks.size(), [&](std::size_t role) { return peaks[role]; });
  Piece piece;
  piece.first = steps_.size();
  AddFacts(count, peaks[worst], lowered.program.roles[worst], ModelFlops(lowered));
  piece.low = std::move(lowered);
  pieces_.push_back(std::move(piece));
}

bool StepFamily::AddAlike(std::vector<std::size_t>& left, LoweredRun& low, const LoweredRun& high) {
  std::optional<CountedStep> counted = CountedStep::Of(low.program, high.program);
  const std::int64_t first = counts_[left.front()];
  const std::int64_t apart = counts_[left.back()] - first;
  if (!counted || apart % counted->span() != 0) {
    return false;
  }
  job_.accumulation_steps = first;
  const Result<std::vector<WindowRun>> windows = WindowsOf(job_);
  const std::int64_t stride = apart / counted->span();  // microbatches of an iteration
  const double flops = ModelFlops(low);
  const double flops_of_iteration = (ModelFlops(high) - flops) / static_cast<double>(counted->span());
  Piece piece;
  piece.first = steps_.size();
  piece.steps = 0;
  std::vector<std::size_t> others;
  for (const std::size_t count : left) {
    job_.accumulation_steps = counts_[count];
    const Result<std::vector<WindowRun>> own = WindowsOf(job_);
    if ((counts_[count] - first) % stride != 0 || !own || !SameWindows(*own, *windows)) {
      others.push_back(count);
      continue;
    }
    const std::int64_t more = (counts_[count] - first) / stride;
    const std::size_t worst = WorstRole(counted->roles(), [&](std::size_t role) { return counted->Peak(role, more); });
    AddFacts(count, counted->Peak(worst, more), low.program.roles[worst],
             flops + flops_of_iteration * static_cast<double>(more));
    piece.more.push_back(more);
    ++piece.steps;
  }
  piece.counted = std::move(counted);
  piece.low = std::move(low);
  pieces_.push_back(std::move(piece));
  left = std::move(others);
  return true;
}

void StepFamily::AddFacts(std::size_t count, MemoryPeak peak, const Program& role, double model_flops) {
  job_.accumulation_steps = counts_[count];
  steps_.push_back({count, std::move(peak), CountCommunicators(role), TokensPerRank(job_), model_flops});
}

StepTime StepFamily::PriceAlone(std::size_t count, const Machine& machine) const {
  constexpr StepRun kSteady;
  Job job = job_;
  job.accumulation_steps = counts_[count];
  job.machine = machine;
  const Result<std::vector<LoweredRun>> lowered = LowerRuns(job, std::span(&kSteady, 1));
  return EvaluateClosedForm(*lowered).whole.time;
}

}  // namespace tidemark
