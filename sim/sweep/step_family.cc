// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/step_family.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "models/job/throughput.h"
#include "models/job/validate.h"
#include "sim/cost/cost.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/time_program.h"
#include "sim/lower/window.h"
#include "sim/predict/communication.h"

namespace tidemark {
namespace {

/// Per rank, mean over the roles.
double ModelFlops(const StepProgram& step) {
  double flops = 0;
  for (const Program& role : step.roles) {
    flops += CountFlops(role).model / static_cast<double>(step.roles.size());
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

bool StandAlike(const WindowPlace& a, const WindowPlace& b) {
  return a.pending == b.pending && a.reduced == b.reduced && a.synchronises == b.synchronises && a.last == b.last;
}

/// Whether a window has the runs of a longer one, but for the length of one, which it may lack: then what is written of
/// it differs in a count only.
bool SameButForOneRun(const std::vector<WindowRun>& window, const std::vector<WindowRun>& longer) {
  std::size_t at = 0, unlike = 0;
  for (const WindowRun& run : longer) {
    const bool there = at < window.size() && StandAlike(window[at].place, run.place);
    unlike += there && window[at].count == run.count ? 0 : 1;
    at += there ? 1 : 0;
  }
  return at == window.size() && unlike <= 1;
}

/// By role.
std::vector<std::int64_t> Communicators(const StepProgram& step) {
  std::vector<std::int64_t> communicators;
  for (const Program& role : step.roles) {
    communicators.push_back(CountCommunicators(role));
  }
  return communicators;
}

}  // namespace

StepFamily::StepFamily(Job job, std::span<const std::int64_t> counts, std::vector<std::size_t> which)
    : job_(std::move(job)), counts_(counts.begin(), counts.end()) {
  TIDEMARK_CHECK(std::ranges::is_sorted(counts_) && std::ranges::is_sorted(which));
  std::vector<std::size_t> left = std::move(which);
  while (!left.empty()) {
    Result<LoweredStep> high = Lower(left.back());
    if (!high) {
      Refuse(left.back(), high.error());
      left.pop_back();
      continue;
    }
    bool alike = false;
    while (left.size() > 1 && !alike) {
      Result<LoweredStep> low = Lower(left.front());
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

std::size_t StepFamily::Longest() const {
  TIDEMARK_CHECK(!steps_.empty());
  return static_cast<std::size_t>(std::ranges::max_element(steps_, {}, &StepFacts::count) - steps_.begin());
}

Status StepFamily::CheckOn(const Machine& machine, std::size_t step) {
  job_.accumulation_steps = counts_[steps_[step].count];
  job_.machine = machine;
  return ValidateOnMachine(job_, blocks_);
}

void StepFamily::Take(const Machine& machine) {
  TIDEMARK_CHECK(machine.devices_per_node == job_.machine.devices_per_node);
  job_.machine = machine;
  for (Piece& piece : pieces_) {
    piece.taken = machine.overlap ? 0 : 1;
    std::optional<TimedStep>& timed = piece.timed[piece.taken];
    if (!timed) {
      timed = piece.counted ? piece.counted->Reduce(piece.step.program, !machine.overlap)
                            : ReduceToTime(piece.step.program, !machine.overlap);
      TakePricesOf(piece.prices, *timed);
    }
    SetPrices(piece.prices.Price(piece.step.usual(), machine), machine, *timed);
  }
}

std::vector<Nanos> StepFamily::LeastSteps() const {
  std::vector<Nanos> least(steps_.size());
  for (const Piece& piece : pieces_) {
    for (const TimedRole& role : piece.step_of_machine().roles) {
      const BusyTime busy = BusyOf(role);
      for (std::size_t i = 0; i < piece.steps; ++i) {
        const std::int64_t more = piece.more.empty() ? 0 : piece.more[i];
        least[piece.first + i] = std::max(least[piece.first + i], Nanos(busy.fixed + more * busy.each));
      }
    }
  }
  return least;
}

std::vector<StepTime> StepFamily::Price() const {
  std::vector<StepTime> times(steps_.size());
  for (const Piece& piece : pieces_) {
    if (!piece.counted) {
      times[piece.first] = FoldTime(piece.step_of_machine());
      continue;
    }
    const auto counted = CountedStep::Times(piece.step_of_machine(), piece.more);
    for (std::size_t i = 0; i < piece.steps; ++i) {
      times[piece.first + i] = counted ? (*counted)[i] : PriceAlone(steps_[piece.first + i].count);
    }
  }
  return times;
}

Result<LoweredStep> StepFamily::Lower(std::size_t count) {
  job_.accumulation_steps = counts_[count];
  TIDEMARK_ASSIGN(std::vector<BlockRun> blocks, ValidateWithoutMachine(job_));
  TIDEMARK_ASSIGN(LoweredStep lowered, LowerStep(job_, StepKind::steady));
  if (blocks_.empty()) {
    blocks_ = std::move(blocks);
  }
  return lowered;
}

void StepFamily::AddOne(std::size_t count, LoweredStep lowered) {
  std::vector<MemoryPeak> peaks;
  for (const Program& role : lowered.program.roles) {
    peaks.push_back(FoldMemory(role));
  }
  const std::size_t worst = WorstRole(peaks.size(), [&](std::size_t role) { return peaks[role]; });
  AddFacts(count, peaks[worst], CountCommunicators(lowered.program.roles[worst]), ModelFlops(lowered.usual()));
  PriceList prices(lowered.usual());
  pieces_.push_back({std::move(lowered), std::move(prices), std::nullopt, {}, steps_.size() - 1, 1, {}, 0});
}

bool StepFamily::AddAlike(std::vector<std::size_t>& left, const LoweredStep& low, LoweredStep& high) {
  std::optional<CountedStep> counted = CountedStep::Of(low.program, high.program);
  const std::int64_t first = counts_[left.front()];
  const std::int64_t apart = counts_[left.back()] - first;
  if (!counted || apart % counted->span() != 0) {
    return false;
  }
  job_.accumulation_steps = counts_[left.back()];
  const Result<std::vector<WindowRun>> longest = WindowsOf(job_);
  const std::int64_t stride = apart / counted->span();  // microbatches of an iteration
  const double flops = ModelFlops(low.usual());
  const double flops_of_iteration = (ModelFlops(high.usual()) - flops) / static_cast<double>(counted->span());
  const std::vector<std::int64_t> of_low = Communicators(low.program), of_high = Communicators(high.program);
  std::vector<std::int64_t> more;
  std::vector<std::size_t> others;
  const std::size_t begin = steps_.size();
  for (const std::size_t count : left) {
    job_.accumulation_steps = counts_[count];
    const Result<std::vector<WindowRun>> own = WindowsOf(job_);
    if ((counts_[count] - first) % stride != 0 || !own || !SameButForOneRun(*own, *longest)) {
      others.push_back(count);
      continue;
    }
    more.push_back((counts_[count] - first) / stride);
    const std::size_t worst =
        WorstRole(counted->roles(), [&](std::size_t role) { return counted->Peak(role, more.back()); });
    AddFacts(count, counted->Peak(worst, more.back()), (more.back() == 0 ? of_low : of_high)[worst],
             flops + flops_of_iteration * static_cast<double>(more.back()));
  }
  PriceList prices(high.usual());
  pieces_.push_back(
      {std::move(high), std::move(prices), std::move(counted), std::move(more), begin, steps_.size() - begin, {}, 0});
  left = std::move(others);
  return true;
}

void StepFamily::AddFacts(std::size_t count, MemoryPeak peak, std::int64_t communicators, double model_flops) {
  job_.accumulation_steps = counts_[count];
  steps_.push_back({count, peak, communicators, TokensPerRank(job_), model_flops});
}

StepTime StepFamily::PriceAlone(std::size_t count) const {
  constexpr StepRun kSteady;
  Job job = job_;
  job.accumulation_steps = counts_[count];
  const Result<std::vector<LoweredRun>> lowered = LowerRuns(job, std::span(&kSteady, 1));
  TIDEMARK_CHECK(lowered.ok());  // as it was when the family was made
  return EvaluateClosedForm(*lowered).whole.time;
}

}  // namespace tidemark
