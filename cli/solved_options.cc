// SPDX-License-Identifier: Apache-2.0
#include "cli/solved_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "cli/changed_job.h"
#include "cli/first_steps.h"
#include "cli/predict_command.h"
#include "models/job/job.h"
#include "sim/predict/predict.h"
#include "sim/predict/steps.h"

namespace tidemark {
namespace {

/// What two rows have alike where one does what the other does: a setting has no effect, or two systems do the same.
std::tuple<Nanos, Bytes, Bytes> CostOf(const PricedRow& row) { return {row.time.step, row.allocated, row.device.high}; }

}  // namespace

void SolvedOptions::PredictNow() {
  const Result<ChangedJob> now = SimulateChanged(job_, {});
  if (now) {
    solution_.now = CostOf(now->report);
    solution_.begins = !solution_.now->fits || !FirstStepsThatDoNotFit(now->job);
    lints_ = now->report.lints;
  } else {
    solution_.refusal = now.error().message;
  }
}

Status SolvedOptions::Pick(std::vector<PricedRow> rows, std::int64_t others, const std::function<bool()>& cancelled) {
  constexpr std::int64_t kMostLooks = 300;  // at what may fit and does not
  std::ranges::sort(rows, {}, [](const PricedRow& row) { return std::tuple(CostOf(row), row.combination); });
  std::optional<Job> best;
  std::set<std::vector<std::string>> kinds;
  for (auto row = rows.begin(); row != rows.end();) {
    if (std::ssize(solution_.options) > others || cancelled()) {
      break;
    }
    const auto end =
        std::find_if(row, rows.end(), [&](const PricedRow& other) { return CostOf(other) != CostOf(*row); });
    const std::span<const PricedRow> alike(std::exchange(row, end), end);
    if (!alike.front().fits && solution_.tight >= kMostLooks) {
      continue;
    }
    TIDEMARK_ASSIGN(std::optional<Job> found, LeastChanged(alike, best.has_value()));
    if (!found) {
      continue;
    }
    std::vector<std::string> kind = best ? jobs_.Differences(*best, *found) : std::vector<std::string>();
    if (kinds.contains(kind)) {
      continue;
    }
    TIDEMARK_ASSIGN(const std::vector<std::string> change, jobs_.ChangeTo(*found));
    TIDEMARK_ASSIGN(Predicted predicted, Predict(change));
    if (!predicted.option.cost.fits || !predicted.begins) {
      ++solution_.tight;
      continue;
    }
    if (!best) {
      best = std::move(found);
    }
    predicted.option.differs_in = kind;
    kinds.insert(std::move(kind));
    solution_.options.push_back(std::move(predicted.option));
  }
  return Done{};
}

Result<std::optional<Job>> SolvedOptions::LeastChanged(std::span<const PricedRow> rows, bool knows_fastest) {
  std::vector<Job> found;
  for (const PricedRow& row : rows) {
    TIDEMARK_ASSIGN(Job job, jobs_.At(row.combination));
    if (jobs_.ComputesTheSame(job)) {
      found.push_back(std::move(job));
    } else {
      solution_.altering += knows_fastest || !row.fits ? 0 : 1;
    }
  }
  std::size_t least = 0, fewest = SIZE_MAX;
  for (std::size_t i = 0; i < found.size() && found.size() > 1; ++i) {
    TIDEMARK_ASSIGN(const std::vector<std::string> change, jobs_.ChangeTo(found[i]));
    if (change.size() < fewest) {
      fewest = change.size();
      least = i;
    }
  }
  return found.empty() ? std::nullopt : std::optional(std::move(found[least]));
}

Status SolvedOptions::PickNearest(std::int64_t combination) {
  TIDEMARK_ASSIGN(const Job nearest, jobs_.At(combination));
  if (!jobs_.ComputesTheSame(nearest)) {
    return Done{};
  }
  TIDEMARK_ASSIGN(const std::vector<std::string> change, jobs_.ChangeTo(nearest));
  TIDEMARK_ASSIGN(Predicted predicted, Predict(change));
  solution_.nearest = std::move(predicted.option);
  return Done{};
}

Result<SolvedOptions::Predicted> SolvedOptions::Predict(const std::vector<std::string>& change) const {
  TIDEMARK_ASSIGN(const ChangedJob changed, SimulateChanged(job_, change));
  Predicted predicted;
  SolvedOption& option = predicted.option;
  option.change = fmt::format("{}", fmt::join(change, " "));
  option.cost = CostOf(changed.report);
  predicted.begins = !option.cost.fits || !FirstStepsThatDoNotFit(changed.job);
  if (solution_.now) {
    option.saved = solution_.now->allocated - option.cost.allocated;
    if (solution_.same_batch) {
      option.lost = option.cost.step - solution_.now->step;
    }
  }
  option.tokens_per_s_per_gpu = changed.report.throughput.tokens_per_s_per_gpu;
  if (changed.report.throughput.mfu > 0) {
    option.mfu = changed.report.throughput.mfu;
  }
  option.lints = NewWarnings(changed.report.lints, lints_);
  option.command = CommandLineOfPredict(job_, change);
  return predicted;
}

}  // namespace tidemark
