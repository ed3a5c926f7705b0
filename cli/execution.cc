// SPDX-License-Identifier: Apache-2.0
#include "cli/execution.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "cli/launch.h"
#include "models/job/read.h"
#include "reports/summarise/title.h"
#include "sim/predict/steps.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMostSteps = 100'000;
constexpr std::int64_t kLargestText = std::int64_t{1} << 30;

Result<RunOptions> ReadOptions(const ExecutionOptions& options) {
  TIDEMARK_TRY(CheckExecution(options));
  RunOptions run;
  run.seed = options.seed;
  run.keep_gradients = options.verify;
  if (!options.capacity.empty()) {
    TIDEMARK_ASSIGN(run.capacity, ParseBytes(options.capacity).At("--capacity"));
  }
  if (!options.data.empty()) {
    TIDEMARK_ASSIGN(run.text, ReadBinaryFile(options.data, kLargestText).At("--data"));
    if (run.text.empty()) {
      return BadInput(fmt::format("--data: '{}' is empty", options.data), "leave out --data for random tokens");
    }
  }
  return run;
}

std::vector<RunStep> StepsOf(const std::vector<LoweredRun>& lowered) {
  std::vector<RunStep> steps;
  for (const LoweredRun& run : lowered) {
    steps.insert(steps.end(), static_cast<std::size_t>(run.run.count), {&run.program, std::string(Name(run.run.kind))});
  }
  return steps;
}

void Describe(const Job& job, Trace& trace) {
  trace.origin = "measured on cpu";
  trace.tool_version = TIDEMARK_VERSION;
  trace.title = JobTitle(job);
  trace.job_yaml = JobYaml(job);
}

/// The trace of every rank, on rank 0.
Result<std::vector<Trace>> Gather(World& world, const Trace& own) {
  if (world.size() == 1) {
    return std::vector<Trace>{own};
  }
  TIDEMARK_ASSIGN(const auto format, FindTraceFormat("tidemark"));
  TIDEMARK_ASSIGN(const std::string bytes, format->Write(std::span(&own, 1)));
  const std::vector<std::string> files = world.GatherTexts(bytes);
  std::vector<Trace> traces;
  for (const std::string& file : files) {
    TIDEMARK_ASSIGN(TraceFile read, format->Read(file));
    traces.push_back(std::move(read.traces.front()));
  }
  return traces;
}

/// Whether all ranks' tensors together find room in this machine's memory.
Status CheckMemory(const Job& job, const std::vector<LoweredRun>& lowered) {
  const Bytes needed = EvaluateClosedForm(lowered).whole.roles.front().allocated * job.Ranks();
  const Bytes available = AvailableMemory();
  if (LaunchedRanks() == 0 && available > Bytes() && needed > available) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("{} ranks need {} for their tensors, and this machine has {} to spare", job.Ranks(),
                             Text(needed), Text(available)),
                 "tidemark predict prices such a job; run a smaller one, or start its ranks on more machines"};
  }
  return Done{};
}

Status ExecuteHere(const Job& job, const std::vector<RunStep>& steps, const RunOptions& options, bool traces,
                   Execution& execution) {
  World& world = *execution.world;
  TIDEMARK_ASSIGN(execution.outcome, RunSteps(job, steps, options, world));
  Describe(job, execution.outcome.trace);
  if (traces) {
    TIDEMARK_ASSIGN(execution.traces, Gather(world, execution.outcome.trace));
  }
  if (options.keep_gradients && !execution.outcome.ran_out) {
    TIDEMARK_ASSIGN(execution.numerics, CompareWithOneBatch(job, steps.front(), options, execution.outcome, world));
  }
  return Done{};
}

/// A rank that cannot go on ends the run for all: the others may be waiting for it.
void EndTogether(World& world, const Error& error) {
  if (world.size() > 1) {
    std::fprintf(stderr, "tidemark: rank %lld: error: %s\n", static_cast<long long>(world.rank()),
                 error.Text().c_str());
    world.Abort(static_cast<int>(error.code));
  }
}

}  // namespace

Status CheckExecution(const ExecutionOptions& options) {
  if (options.steps < 1 || options.steps > kMostSteps) {
    return BadInput(
        fmt::format("--steps: expected a number from 1 to {}, found {}", Grouped(kMostSteps), options.steps),
        "steps are counted from the first one on");
  }
  return Done{};
}

void AddExecutionOptions(CLI::App& app, ExecutionOptions& options) {
  app.add_option("--steps", options.steps, "so many optimizer steps, from the first on (default 1)")->type_name("K");
  app.add_option("--data", options.data, "a text to learn from, each byte a token; default: random tokens")
      ->type_name("FILE");
  app.add_option("--seed", options.seed, "of weights, tokens and dropout (default 0)")->type_name("N");
  app.add_option("--capacity", options.capacity, "memory of each rank's device: 512MiB; default: unlimited")
      ->type_name("SIZE");
}

void AddDeviceOption(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "what it runs on: cpu (default), host memory and a thread per rank")
      ->type_name("NAME")
      ->check(CLI::IsMember({"cpu"}));
}

Result<Execution> Execute(const Job& job, const ExecutionOptions& options) {
  TIDEMARK_ASSIGN(const RunOptions run, ReadOptions(options));
  const std::vector<StepRun> kinds = FirstSteps(options.steps);
  TIDEMARK_ASSIGN(const std::vector<LoweredRun> lowered, LowerRuns(job, kinds));
  const std::vector<RunStep> steps = StepsOf(lowered);
  TIDEMARK_TRY(CheckExecutable(job, steps, run));
  if (options.verify) {
    TIDEMARK_TRY(OneBatchOf(job));
  }
  TIDEMARK_TRY(CheckMemory(job, lowered));
  Execution execution;
  TIDEMARK_ASSIGN(execution.world, EnterWorld(job.Ranks()));
  if (const Status done = ExecuteHere(job, steps, run, options.traces, execution); !done) {
    EndTogether(*execution.world, done.error());
    return done.error();
  }
  return execution;
}

}  // namespace tidemark
