// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "models/job/read.h"
#include "profiler/execute/run.h"
#include "sim/predict/steps.h"
#include "sim/strategies/strategy.h"

// What of a step's time the executor itself takes: the step less its kernels, as a fraction of the step, on one rank.

namespace tidemark {
namespace {

constexpr std::int64_t kSteps = 4;

/// The job of the demo on one rank.
Job DemoJob() {
  Result<Job> job =
      ReadJob(TIDEMARK_TESTS "/jobs/demo-small.yaml", {.set = {"layout.tp=1"}, .format = {}}, KnownStrategies());
  TIDEMARK_CHECK(job.ok());
  return std::move(*job);
}

void OutsideKernels(benchmark::State& state) {
  const Job job = DemoJob();
  const auto lowered = LowerRuns(job, FirstSteps(kSteps));
  TIDEMARK_CHECK(lowered.ok());
  std::vector<RunStep> steps;
  for (const LoweredRun& run : *lowered) {
    steps.insert(steps.end(), static_cast<std::size_t>(run.run.count), {&run.program, std::string(Name(run.run.kind))});
  }
  Nanos in_steps, in_kernels;
  for (auto _ : state) {
    const auto world = MakeSingleWorld();
    const Result<RunOutcome> run = RunSteps(job, steps, {}, *world);
    TIDEMARK_CHECK(run.ok());
    const Nanos warm = run->trace.steps.at(1).begin;  // the first step meets memory that no one has touched
    in_steps += run->trace.steps.back().end - warm;
    for (const Slice& slice : run->trace.slices) {
      in_kernels += slice.start < warm ? Nanos() : slice.end - slice.start;
    }
  }
  const auto whole = static_cast<double>(in_steps.count());
  state.counters["outside_fraction"] = (whole - static_cast<double>(in_kernels.count())) / whole;
}

BENCHMARK(OutsideKernels)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidemark
