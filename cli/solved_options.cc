// SPDX-License-Identifier: Apache-2.0
#include "cli/solved_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "cli/changed_job.h"
#include "cli/first_steps.h"
#include "cli/predict_command.h"
#include "models/job/job.h"
#include "sim/predict/predict.h"
#include "sim/predict/steps.h"

namespace tidemark {
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
  std::ranges::sort(rows, {}, [](const PricedRow& row) { return std::pair(row.time.step, row.combination); });
  std::optional<Job> best;
  std::set<std::vector<std::string>> kinds;
  for (const PricedRow& row : rows) {
    if (std::ssize(solution_.options) > others || cancelled()) {
      break;
    }
    if (!row.fits && solution_.tight >= kMostLooks) {
      continue;
    }
    TIDEMARK_ASSIGN(Job found, jobs_.At(row.combination));
    if (!jobs_.ComputesTheSame(found)) {
      solution_.altering += best || !row.fits ? 0 : 1;
      continue;
    }
    std::vector<std::string> kind = best ? jobs_.Differences(*best, found) : std::vector<std::string>();
    if (kinds.contains(kind)) {
      continue;
    }
    TIDEMARK_ASSIGN(const std::vector<std::string> change, jobs_.ChangeTo(found));
    TIDEMARK_ASSIGN(Predicted predicted, Predict(change));
    if (!predicted.option.cost.fits || !predicted.begins) {
      ++solution_.tight;
      continue;
    }
    best = best ? std::move(best) : std::optional(std::move(found));
    predicted.option.differs_in = kind;
    kinds.insert(std::move(kind));
    solution_.options.push_back(std::move(predicted.option));
  }
  return Done{};
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
