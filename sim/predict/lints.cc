// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/lints.h"

#include <fmt/format.h>

#include <cmath>

namespace tidemark {
namespace {

/// From here on the error of a bf16 sum (0.7 %) is well above that of rounding the exact sum once (0.17 %).
constexpr std::int64_t kManyMicrobatches = 32;

/// The dtype of the running sum, and the key that sets it.
struct Sum {
  DType dtype;
  const char* key;
};

Sum SumOf(const Axes& axes) {
  // With sharded gradients scattered each time, the sum is kept in the shard's dtype.
  if (axes.shard.gradients && axes.sync.when == Sync::When::every) {
    return {axes.precision.master.value_or(axes.precision.params), "precision.master"};
  }
  return {axes.precision.accumulate, "precision.accumulate"};
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
  const Sum sum = SumOf(job.axes);
  if (microbatches >= kManyMicrobatches && (sum.dtype == DType::bf16 || sum.dtype == DType::fp16)) {
    lints.push_back(
        {"low-precision-sum", "warning",
         fmt::format("{} microbatches are summed in {}: expect a relative error of about {:.1f} % in zero-mean "
                     "gradients, more where they agree in sign",
                     microbatches, Name(sum.dtype), 0.12 * std::sqrt(static_cast<double>(microbatches))),
         fmt::format("keep the sum in fp32 ({}: fp32), or use fewer, larger microbatches", sum.key)});
  }
  if (microbatches < job.layout.pp) {
    lints.push_back({"pipeline-underfilled", "warning",
                     fmt::format("{} microbatches cannot keep {} pipeline stages busy", microbatches, job.layout.pp),
                     "raise accumulation_steps, or lower layout.pp"});
  }
  return lints;
}

}  // namespace tidemark
