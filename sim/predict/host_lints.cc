// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/host_lints.h"

#include <fmt/format.h>

#include "base/text.h"
#include "sim/lower/rank_parameters.h"
#include "sim/lower/window.h"

namespace tidemark {
namespace {

/// Microbatches of a step whose reduced gradients find those of others.
std::int64_t AddedOnHost(const Job& job) {
  std::int64_t added = 0;
  if (const Result<std::vector<WindowRun>> windows = WindowsOf(job)) {
    for (const WindowRun& run : *windows) {
      added += run.place.reduced && run.place.synchronises ? run.count : 0;
    }
  }
  return added;
}

}  // namespace

void AppendHostWork(const Job& job, const Strategy& strategy, std::vector<Lint>& lints) {
  const std::int64_t added = job.axes.optimizer_step.offload && strategy.host_adds ? AddedOnHost(job) : 0;
  if (added == 0) {
    return;
  }
  const Bytes whole = SizeOf(job.axes.precision.reduce) * RankParameters(job);
  lints.push_back({"host-adds-gradients", "note",
                   fmt::format("of {} microbatches {} find gradients in host memory: the host waits for each "
                               "parameter's and adds it up, and the device has nothing to do meanwhile",
                               job.Microbatches(), added),
                   fmt::format("sync.when=last (set_requires_gradient_sync) adds up whole gradients on the device, "
                               "{}, and the host waits once",
                               Text(whole))});
}

}  // namespace tidemark
