// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/lints.h"

#include <fmt/format.h>

#include <cmath>

namespace tidemark {
namespace {

/// From here on the error of a bf16 sum (0.7 %) is well above that of rounding the exact sum once (0.17 %).
constexpr std::int64_t kManyMicrobatches = 32;

bool SumsInLowPrecision(const Axes& axes) {
  // With sharded gradients scattered each time, the sum is kept in the shard's dtype.
  const DType sum = axes.shard.gradients && axes.sync.when == Sync::When::every
                        ? axes.precision.master.value_or(axes.precision.params)
                        : axes.precision.accumulate;
  return sum == DType::bf16 || sum == DType::fp16;
}

}  // namespace

std::vector<Lint> LintJob(const Job& job) {
  std::vector<Lint> lints;
  const std::int64_t microbatches = job.accumulation_steps;
  if (job.axes.sync.when == Sync::When::every && job.axes.sync.collective == CollectiveKind::all_reduce &&
      microbatches > 1 && job.layout.dp > 1) {
    lints.push_back(
        {"sync-every-microbatch", "warning",
         fmt::format("gradients are all-reduced {} times a step, although only their sum is used", microbatches),
         "reduce in the last microbatch only: sync.when: last (PyTorch: forward and backward inside no_sync)"});
  }
  if (microbatches >= kManyMicrobatches && SumsInLowPrecision(job.axes)) {
    lints.push_back(
        {"low-precision-sum", "warning",
         fmt::format("{} microbatches are summed in {}: expect a relative error of about {:.1f} % in zero-mean "
                     "gradients, more where they agree in sign",
                     microbatches, Name(job.axes.precision.accumulate),
                     0.12 * std::sqrt(static_cast<double>(microbatches))),
         "accumulate in fp32 (precision.accumulate: fp32), or use fewer, larger microbatches"});
  }
  if (microbatches < job.layout.pp) {
    lints.push_back({"pipeline-underfilled", "warning",
                     fmt::format("{} microbatches cannot keep {} pipeline stages busy", microbatches, job.layout.pp),
                     "raise accumulation_steps, or lower layout.pp"});
  }
  return lints;
}

}  // namespace tidemark
