// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/host_lints.h"

#include <fmt/format.h>

#include <string>

#include "base/text.h"
#include "sim/lower/rank_parameters.h"
#include "sim/lower/window.h"

namespace tidemark {
namespace {

/// Microbatches of a step whose reduced gradients find others: those of a window that has reduced before, and zeros
/// where gradients are kept.
struct Found {
  std::int64_t sums = 0, zeros = 0;
};

Found FoundOnHost(const Job& job) {
  Found found;
  if (const Result<std::vector<WindowRun>> windows = WindowsOf(job)) {
    for (const WindowRun& run : *windows) {
      const std::int64_t reductions = run.place.synchronises ? run.count : 0;
      (run.place.reduced ? found.sums : found.zeros) += reductions;
    }
  }
  found.zeros = job.axes.buffers.set_to_none ? 0 : found.zeros;
  return found;
}

}  // namespace

void AppendHostWork(const Job& job, const Strategy& strategy, std::vector<Lint>& lints) {
  const Found found = job.axes.optimizer_step.offload && strategy.host_adds ? FoundOnHost(job) : Found();
  if (found.sums + found.zeros == 0) {
    return;
  }
  const Bytes whole = SizeOf(job.axes.precision.reduce) * RankParameters(job);
  const std::string defers = fmt::format(
      "sync.when=last (set_requires_gradient_sync) adds up whole gradients on the device, {}, and the host waits once",
      Text(whole));
  lints.push_back({"host-adds-gradients", "note",
                   fmt::format("of {} microbatches {} find gradients in host memory: the host waits for each "
                               "parameter's and adds it up, and the device has nothing to do meanwhile",
                               job.Microbatches(), found.sums + found.zeros),
                   found.sums > 0 ? defers : "buffers.set_to_none=true leaves nothing to add to"});
}

}  // namespace tidemark
