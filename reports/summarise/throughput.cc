// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/throughput.h"

namespace tidemark {

double TokensPerRank(const Job& job) {
  const auto* encoders = std::get_if<DualEncoder>(&job.network.shape);
  const std::int64_t of_a_sample = encoders == nullptr ? 1 : 1 + encoders->targets;
  const auto sequences =
      static_cast<double>(job.micro_batch_size * job.accumulation_steps * job.layout.dp * of_a_sample);
  return sequences * static_cast<double>(job.sequence_length) / static_cast<double>(job.Ranks());
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
