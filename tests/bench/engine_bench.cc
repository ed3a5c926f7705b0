// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <chrono>

#include "models/job/read.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/lower/lower.h"
#include "sim/program/text.h"
#include "sim/strategies/strategy.h"

// Speed as rates, and as ratios between two sizes measured in one run: the closed form must not grow with layers or
// microbatches.

namespace tidemark {
namespace {

Job BenchJob(const std::string& strategy, std::int64_t layers, std::int64_t microbatches) {
  const std::string yaml = "network: {layers: " + std::to_string(layers) +
                           ", hidden: 1024, ffn: 2816, heads: 16, kv_heads: 4, vocabulary: 32000}\n"
                           "machine: h100-sxm-80gb\nsequence_length: 2048\nmicro_batch_size: 2\n"
                           "accumulation_steps: " +
                           std::to_string(microbatches) + "\nlayout: {dp: 8}\nstrategy: " + strategy + "\n";
  Result<Job> job = ParseJob(yaml, "bench.yaml", {}, KnownStrategies());
  TIDEMARK_CHECK(job.ok());
  return std::move(*job);
}

const char* StrategyOf(std::int64_t index) {
  static constexpr const char* kStrategies[] = {"ddp-last", "fsdp2-scatter-each", "nanotron"};
  return kStrategies[index];
}

/// A job from its description to its answer.
void ClosedFormFromJob(benchmark::State& state) {
  const Job job = BenchJob(StrategyOf(state.range(0)), state.range(1), state.range(2));
  for (auto _ : state) {
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    benchmark::DoNotOptimize(EvaluateClosedForm(*step, PriceAll(*step, job.machine)));
  }
  state.SetLabel(StrategyOf(state.range(0)));
  state.counters["jobs"] = benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

/// The evaluation alone: program and prices are there.
void ClosedFormOfProgram(benchmark::State& state) {
  const Job job = BenchJob(StrategyOf(state.range(0)), state.range(1), state.range(2));
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  const std::vector<Costs> costs = PriceAll(*step, job.machine);
  for (auto _ : state) {
    benchmark::DoNotOptimize(EvaluateClosedForm(*step, costs));
  }
  state.SetLabel(StrategyOf(state.range(0)));
  state.counters["evaluations"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

/// The large job's time over the small one's, taken in turns.
void ClosedFormGrowth(benchmark::State& state) {
  const Job small = BenchJob(StrategyOf(state.range(0)), 8, 4);
  const Job large = BenchJob(StrategyOf(state.range(0)), 126, 256);
  const auto seconds = [](const Job& job) {
    const auto start = std::chrono::steady_clock::now();
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    benchmark::DoNotOptimize(EvaluateClosedForm(*step, PriceAll(*step, job.machine)));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double of_small = 0, of_large = 0;
  for (auto _ : state) {
    of_small += seconds(small);
    of_large += seconds(large);
  }
  state.SetLabel(StrategyOf(state.range(0)));
  state.counters["ratio"] = of_large / of_small;
}

void Simulation(benchmark::State& state) {
  const Job job = BenchJob(StrategyOf(state.range(0)), state.range(1), state.range(2));
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  const std::vector<Costs> costs = PriceAll(*step, job.machine);
  std::size_t events = 0;
  for (const Program& program : step->roles) {
    events += Unroll(program).nodes.size();
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(Simulate(*step, costs));
  }
  state.SetLabel(StrategyOf(state.range(0)));
  state.counters["events"] = benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(events),
                                                benchmark::Counter::kIsRate);
}

BENCHMARK(ClosedFormFromJob)->ArgsProduct({{0, 1, 2}, {8}, {4}})->ArgsProduct({{0, 1, 2}, {126}, {256}});
BENCHMARK(ClosedFormOfProgram)->ArgsProduct({{0, 1, 2}, {8}, {4}})->ArgsProduct({{0, 1, 2}, {126}, {256}});
BENCHMARK(ClosedFormGrowth)->DenseRange(0, 2);
BENCHMARK(Simulation)->ArgsProduct({{0, 1, 2}, {8}, {4}})->ArgsProduct({{0, 1, 2}, {32}, {64}});

}  // namespace
}  // namespace tidemark
