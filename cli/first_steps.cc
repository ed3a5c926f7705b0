// SPDX-License-Identifier: Apache-2.0
#include "cli/first_steps.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/quantity.h"
#include "base/result.h"
#include "base/text.h"
#include "cli/prediction_report.h"
#include "reports/summarise/prediction.h"
#include "sim/predict/predict.h"
#include "sim/predict/steps.h"

namespace tidemark {

std::optional<Lint> FirstStepsThatDoNotFit(const Job& job, std::int64_t most_events) {
  constexpr std::int64_t kFirst = 2;
  if (job.last_window.microbatches > 0) {
    return std::nullopt;
  }
  PredictOptions options;
  options.steps = FirstSteps(kFirst);
  options.traces = false;
  options.most_events = most_events;
  Result<Prediction> prediction = Predict(job, options);
  if (!prediction) {
    return std::nullopt;
  }
  const PredictionReport first = MakeReport(job, options, std::move(*prediction));
  if (first.Fits()) {
    return std::nullopt;
  }
  const Bytes needed = first.Worst().device.high;
  return Lint{"first-steps-do-not-fit", "error",
              fmt::format("a steady step fits, but the first {} steps in a row need up to {}, {} more than {}", kFirst,
                          Text(needed), Text(needed - first.usable_memory),
                          UsableMemoryText(first.usable_memory, first.device_memory)),
              fmt::format("tidemark predict --steps {} shows them", kFirst)};
}

}  // namespace tidemark
