// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "models/job/read.h"
#include "sim/lower/lower.h"
#include "sim/strategies/strategy.h"

// How long a job takes to become a program, without reading it: what a sweep pays for a row that shares nothing.

namespace tidemark {
namespace {

Job LlamaJob(const std::string& strategy, const std::string& layout) {
  const std::string yaml =
      "network: llama-3-8b\nmachine: h100-sxm-80gb\nsequence_length: 8192\nmicro_batch_size: 1\n"
      "accumulation_steps: 32\nstrategy: " +
      strategy + "\nlayout: " + layout + "\n";
  Result<Job> job = ParseJob(yaml, "bench.yaml", {}, KnownStrategies());
  TIDEMARK_CHECK(job.ok());
  return std::move(*job);
}

void LowerLlama(benchmark::State& state, const char* strategy, const char* layout) {
  const Job job = LlamaJob(strategy, layout);
  for (auto _ : state) {
    benchmark::DoNotOptimize(Lower(job, StepKind::steady));
  }
  state.counters["jobs"] = benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

BENCHMARK_CAPTURE(LowerLlama, fsdp2, "fsdp2-scatter-each", "{dp: 8}");
BENCHMARK_CAPTURE(LowerLlama, ddp, "ddp-last", "{dp: 8}");
BENCHMARK_CAPTURE(LowerLlama, nanotron, "nanotron", "{dp: 8, tp: 2}");
BENCHMARK_CAPTURE(LowerLlama, zero2, "deepspeed-zero2", "{dp: 8}");
BENCHMARK_CAPTURE(LowerLlama, megatron, "megatron", "{dp: 8, tp: 2}");
BENCHMARK_CAPTURE(LowerLlama, nanotron_1f1b, "nanotron", "{dp: 8, pp: 8}");
BENCHMARK_CAPTURE(LowerLlama, megatron_1f1b, "megatron", "{dp: 8, pp: 8}");
BENCHMARK_CAPTURE(LowerLlama, megatron_1f1b_16, "megatron", "{dp: 8, pp: 16}");

}  // namespace
}  // namespace tidemark
