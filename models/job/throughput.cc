// SPDX-License-Identifier: Apache-2.0
#include "models/job/throughput.h"

#include "base/expression.h"

namespace tidemark {
namespace {

/// Up to the last microbatch of a loop with a predicate of its own behind which the optimizer steps.
std::int64_t UpToTheLastStep(const Job& job) {
  const Sync& sync = job.axes.sync;
  const Result<Expression> steps =
      Expression::Parse(sync.step_expression.empty() ? sync.expression : sync.step_expression, {"i", "steps"});
  if (!steps) {
    return job.Microbatches();
  }
  std::int64_t count = job.Microbatches();
  for (; count > 0; --count) {
    const Result<std::int64_t> step = steps->Evaluate({count - 1, job.Microbatches()});
    if (!step || *step != 0) {
      break;
    }
  }
  return count;
}

}  // namespace

std::int64_t MicrobatchesThatCount(const Job& job) {
  if (job.axes.sync.when == Sync::When::custom) {
    return UpToTheLastStep(job);
  }
  const bool short_window = job.Microbatches() != job.accumulation_steps;
  return short_window && job.last_window.policy == LastWindow::Policy::drop ? 0 : job.Microbatches();
}

double TokensPerRank(const Job& job) {
  const auto* encoders = std::get_if<DualEncoder>(&job.network.shape);
  const std::int64_t of_a_sample = encoders == nullptr ? 1 : 1 + encoders->targets;
  const std::int64_t passes = job.CachesRepresentations() ? job.accumulation_steps : MicrobatchesThatCount(job);
  const auto sequences = static_cast<double>(job.micro_batch_size * passes * job.layout.dp * of_a_sample);
  const std::int64_t length = job.mean_sequence_length > 0 ? job.mean_sequence_length : job.sequence_length;
  return sequences * static_cast<double>(length) / static_cast<double>(job.Ranks());
}

Throughput MakeThroughput(const StepWork& work, Nanos step, FlopsPerSec peak) {
  Throughput throughput;
  const double seconds = static_cast<double>(step.count()) / 1e9;
  if (seconds <= 0) {
    return throughput;
  }
  const double model_rate = work.model / seconds;
  const double hardware_rate = work.hardware / seconds;
  throughput.tokens_per_s_per_gpu = work.tokens / seconds;
  throughput.model_tflops_per_gpu = model_rate / 1e12;
  if (peak.per_second() > 0) {
    throughput.mfu = model_rate / peak.per_second();
    throughput.hfu = hardware_rate / peak.per_second();
  }
  return throughput;
}

}  // namespace tidemark
