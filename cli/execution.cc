// SPDX-License-Identifier: Apache-2.0
#include "cli/execution.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "cli/opened_device.h"
#include "cli/trace_output.h"
#include "cli/unlike_ranks.h"
#include "cli/write_file.h"
#include "models/job/read.h"
#include "models/job/read_allocator.h"
#include "profiler/capture/annotations.h"
#include "profiler/capture/heap.h"
#include "profiler/capture/nvtx_annotations.h"
#include "profiler/comm/launcher.h"
#include "profiler/device/machine_memory.h"
#include "profiler/device/probe.h"
#include "profiler/execute/exact_program.h"
#include "profiler/execute/operation.h"
#include "reports/summarise/title.h"
#include "sim/predict/predict.h"
#include "sim/predict/steps.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMostExecutedSteps = 100'000;
constexpr std::int64_t kLargestText = std::int64_t{1} << 30;

/// Unsigned numbers would wrap around, or be cut off.
std::string RefuseOtherSeeds(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::string() : fmt::format("expected a number from 0 to 2^64 - 1, found {}", text);
}

constexpr const char* kSteps = "steps";

Recording RecordingOf(const ExecutionOptions& options) {
  return options.timed == kSteps ? Recording::memory : Recording::operations;
}

Result<RunOptions> ReadOptions(const ExecutionOptions& options) {
  TIDEMARK_TRY(CheckExecution(options));
  RunOptions run;
  run.seed = options.seed;
  run.keep_gradients = options.verify;
  run.time_work = RecordingOf(options) == Recording::operations;
  run.again = options.verify ? Poison::everything : Poison::nothing;
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

Result<LaunchOptions> ReadLaunchOptions(const ExecutionOptions& options, std::int64_t ranks) {
  constexpr Nanos kShortest{1'000'000'000};  // of what can be told from a busy machine
  const Result<Nanos> timeout = ParseNanos(options.hang_timeout);
  if (!timeout || (*timeout > Nanos() && *timeout < kShortest)) {
    return BadInput(
        fmt::format("--hang-timeout: expected a time of 1 s or more, or 0s, found '{}'", options.hang_timeout),
        "write it with its unit: 20s; 0s never ends a run");
  }
  return LaunchOptions{*timeout, TraceOutput::LeftBehind(options.trace_path, ranks), {options.job_path, options.data}};
}

std::vector<RunStep> StepsOf(const std::vector<LoweredRun>& lowered) {
  std::vector<RunStep> steps;
  for (const LoweredRun& run : lowered) {
    steps.insert(steps.end(), static_cast<std::size_t>(run.run.count), {&run.program, std::string(Name(run.run.kind))});
  }
  return steps;
}

/// What a trace of this job says before anything has happened.
Trace BlankTrace(const Job& job, const std::string& device) {
  Trace trace;
  trace.origin = "measured on " + device;
  trace.tool_version = TIDEMARK_VERSION;
  trace.title = JobTitle(job);
  trace.job_yaml = JobYaml(job);
  trace.allocator = AllocatorSettings(job.allocator);
  return trace;
}

/// `rank`: of the group "dp".
Result<std::vector<LoweredRun>> LowerCounted(const Job& job, std::int64_t steps, std::int64_t rank) {
  const HeapScope scope(HeapOwner::step_program);
  const std::vector<StepRun> kinds = FirstSteps(steps);
  return LowerRuns(job, kinds, rank);
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

/// The peaks of all ranks' tensors together.
Bytes TensorsOf(const Job& job, const std::vector<LoweredRun>& lowered) {
  Bytes all;
  const StepsEvaluation evaluation = EvaluateClosedForm(lowered);
  for (const auto& role : evaluation.whole.roles) {
    all += role.allocated * (job.Ranks() / job.layout.pp);
  }
  return all;
}

/// What CompareWithOneBatch takes at least in this machine's memory. It executes one big batch on each rank and then,
/// `here`, the first step on all of them, both in fp64: the higher peak counts. Beside it are gradients in fp64, each
/// rank's of the batch and once the step's, of which the ranks may have parts; where parameters are frozen, none are
/// counted.
Result<Bytes> TensorsToVerify(const Job& job, const LoweredRun& first, bool here) {
  const auto exact = [](const Job& executed, LoweredRun lowered) {
    lowered.program = ExactProgram(std::move(lowered.program));
    return TensorsOf(executed, {std::move(lowered)});
  };
  TIDEMARK_ASSIGN(const Job one_batch, OneBatchOf(job));
  TIDEMARK_ASSIGN(const std::vector<LoweredRun> lowered, LowerCounted(one_batch, 1, 0));
  const Bytes of_batches = exact(one_batch, lowered.front()) * job.Ranks();
  const bool all_trained = job.network.trainable.empty();
  const Bytes kept = SizeOf(DType::fp64) * (all_trained ? ParameterCount(job.network) : 0) * (job.Ranks() + 1);
  return kept + (here ? std::max(of_batches, exact(job, first)) : of_batches);
}

/// Whether all ranks' tensors together find room in this machine's memory. What is to run out of memory, as it may
/// under `capacity`, is not verified.
Status CheckMemory(const Job& job, const std::vector<LoweredRun>& lowered, const ExecutionOptions& options) {
  const std::optional<Bytes> available = AvailableMemory();
  if (FindLauncher().kind != Launcher::Kind::none || !available) {
    return Done{};
  }
  const auto refuse = [&](Bytes needed, std::string_view what, std::string hint) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("the job's ranks ({}) need {} for their tensors{}, and this machine has {} to spare",
                             job.Ranks(), Text(needed), what, Text(*available)),
                 std::move(hint)};
  };
  const bool here = options.device != kCuda;
  if (const Bytes needed = here ? TensorsOf(job, lowered) : Bytes(); needed > *available) {
    return refuse(needed, "",
                  "tidemark predict prices such a job; run a smaller one, or start its ranks on more machines");
  }
  if (options.verify && options.capacity.empty()) {
    TIDEMARK_ASSIGN(const Bytes needed, TensorsToVerify(job, lowered.front(), here));
    if (needed > *available) {
      return refuse(needed, " and gradients where they are verified in fp64",
                    "leave out --verify, or run a smaller job");
    }
  }
  return Done{};
}

/// Puts the traces of all ranks where they were asked for. All ranks call it.
void WriteTraces(World& world, TraceOutput& output, Execution& execution) {
  if (world.rank() == 0) {
    if (const Status written = output.Finish(execution.traces); !written) {
      execution.unwritten = written.error();
    }
  }
  const bool all_written = world.Highest(execution.unwritten ? 1 : 0) == 0;
  if (world.rank() != 0 && all_written) {
    output.Discard();
  }
}

Status ExecuteHere(const Job& job, const std::vector<RunStep>& steps, RunOptions run, const ExecutionOptions& options,
                   Execution& execution) {
  OpenedDevice own;
  if (execution.met_on.device == nullptr) {
    TIDEMARK_ASSIGN(own, OpenDevice(options.device, *execution.place.world, RecordingOf(options)));
  }
  const OpenedDevice& opened = own.device == nullptr ? execution.met_on : own;
  run.device = opened.device.get();
  run.capture = opened.capture.get();
  run.watch = opened.watch;
  World& world = opened.world ? *opened.world : *execution.place.world;
  execution.exchanges = world.how();
  run.progress = &execution.place.link->progress();
  const std::unique_ptr<Annotations> annotations = MakeNvtxAnnotations();
  run.annotations = annotations.get();
  run.blank = BlankTrace(job, options.device.empty() ? "cpu" : options.device);
  std::optional<TraceOutput> output;
  if (!options.trace_path.empty()) {
    TIDEMARK_ASSIGN(output, TraceOutput::Open(options.trace_path, world.rank()));
    run.keep_trace = [&](const Trace& so_far) { output->Keep(so_far); };
  }
  TIDEMARK_ASSIGN(execution.outcome, RunSteps(job, steps, run, world));
  run.progress->Enter(RankProgress::State::running);  // what is left to do is no waiting for others
  if (execution.outcome.budget) {
    const std::vector<std::string> budgets = world.GatherTexts(Pack(*execution.outcome.budget));
    for (const std::string& budget : budgets) {
      execution.budgets.push_back(Unpack(budget));
    }
  }
  execution.peak = HighestPeak(world, execution.outcome);
  if (options.traces || output) {
    TIDEMARK_ASSIGN(execution.traces, Gather(world, execution.outcome.trace));
  }
  if (output) {
    WriteTraces(world, *output, execution);
  }
  if (run.keep_gradients && !execution.outcome.ran_out) {
    TIDEMARK_ASSIGN(execution.numerics, CompareWithOneBatch(job, steps.front(), run, execution.outcome, world));
  }
  run.progress->Enter(RankProgress::State::ended);
  return Done{};
}

/// What throws must end the run for all as well, instead of unwinding one rank while the others wait.
Status ExecuteSafely(const Job& job, std::vector<LoweredRun> lowered, const RunOptions& run,
                     const ExecutionOptions& options, Execution& execution) {
  try {
    if (const std::int64_t rank = ShardOf(job, execution.place.world->rank()); rank > 0) {
      lowered.clear();  // those of the first rank
      TIDEMARK_ASSIGN(lowered, LowerCounted(job, options.steps, rank));
    }
    return ExecuteHere(job, StepsOf(lowered), run, options, execution);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::machine_cannot, "", "the system has no more memory",
                 "tidemark predict says what a rank needs"};
  } catch (const std::exception& exception) {
    return Error{ErrorCode::internal, "", exception.what(), "this is a fault of tidemark: please report it"};
  }
}

}  // namespace

Status CheckExecution(const ExecutionOptions& options) {
  if (options.steps < 1 || options.steps > kMostExecutedSteps) {
    return BadInput(
        fmt::format("--steps: expected a number from 1 to {}, found {}", Grouped(kMostExecutedSteps), options.steps),
        "steps are counted from the first one on");
  }
  return Done{};
}

void AddExecutionOptions(CLI::App& app, ExecutionOptions& options) {
  app.add_option("--steps", options.steps, "so many optimizer steps, from the first on (default 1)")->type_name("K");
  app.add_option("--data", options.data, "a text to learn from, each byte a token; default: random tokens")
      ->type_name("FILE");
  app.add_option("--seed", options.seed, "of weights, tokens and dropout (default 0)")
      ->type_name("N")
      ->check(CLI::Validator(RefuseOtherSeeds, ""));
  app.add_option("--hang-timeout", options.hang_timeout,
                 "end the run where a rank stands still for so long (default 20s; 0s: never)")
      ->type_name("TIME");
}

void AddCapacityOption(CLI::App& app, ExecutionOptions& options) {
  app.add_option("--capacity", options.capacity, "memory of each rank's device: 512MiB; default: unlimited")
      ->type_name("SIZE");
}

void AddTimedOption(CLI::App& app, ExecutionOptions& options) {
  app.add_option("--timed", options.timed,
                 "on a GPU: operations, by CUPTI's records (default), or steps alone, without what recording costs")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"operations", kSteps}));
}

void AddDeviceOption(CLI::App& app, std::string& device, const std::string& without) {
  app.add_option(
         "--device", device,
         "what it runs on: cpu, host memory and a process per rank; cuda, which needs a GPU; default: " + without)
      ->type_name("NAME")
      ->check(CLI::IsMember({"cpu", kCuda}));
}

Status CheckDevice(const std::string& device) {
  if (device != kCuda) {
    return Done{};
  }
  if (const DeviceProbe probe = ProbeDevices(); !probe.reason.empty()) {
    return Error{ErrorCode::machine_cannot, "", "--device cuda: there is no GPU to run on: " + probe.reason,
                 "use this machine's processor, --device cpu; tidemark predict prices the job on a GPU"};
  }
  return Done{};
}

void EndTogether(const Entered& place, const Error& error) {
  World& world = *place.world;
  if (world.size() > 1) {
    std::fprintf(stderr, "tidemark: rank %lld: error: %s\n", static_cast<long long>(world.rank()),
                 error.Text().c_str());
    place.link->progress().Enter(RankProgress::State::failed);
    world.Abort(static_cast<int>(error.code));
  }
}

Result<Execution> Execute(const Job& job, const ExecutionOptions& options) {
  TIDEMARK_TRY(RefuseToOverwrite(options.trace_path, options.data));
  TIDEMARK_TRY(CheckWritable(options.trace_path));
  TIDEMARK_ASSIGN(RunOptions run, ReadOptions(options));
  CountHeap();
  TIDEMARK_ASSIGN(LaunchOptions launch, ReadLaunchOptions(options, job.Ranks()));
  TIDEMARK_TRY(CheckRepeats(job, options.steps));
  TIDEMARK_ASSIGN(std::vector<LoweredRun> lowered, LowerCounted(job, options.steps, 0));
  TIDEMARK_TRY(CheckExecutable(job, StepsOf(lowered), run));
  if (options.device == kCuda && job.axes.optimizer_step.offload) {
    return NotExecuted("an optimizer in host memory beside a GPU (optimizer_step.offload)");
  }
  if (run.capacity && RanksAreUnlike(job)) {  // the first would run out alone, and the others wait for it
    return NotExecuted("ranks that keep unlike parts of padded state on a device of a given size (--capacity)");
  }
  if (options.verify) {
    TIDEMARK_TRY(OneBatchOf(job));
  }
  TIDEMARK_TRY(CheckMemory(job, lowered, options));
  Execution execution;
  if (options.device == kCuda) {
    launch.meet_on_gpus = [&execution, &options]() -> Result<std::unique_ptr<World>> {
      TIDEMARK_ASSIGN(execution.met_on, OpenDeviceOfTorchrun(RecordingOf(options)));
      return std::move(execution.met_on.world);
    };
  }
  TIDEMARK_ASSIGN(execution.place, EnterWorld(job, launch));
  if (execution.place.world == nullptr) {
    return execution;
  }
  if (const Status done = ExecuteSafely(job, std::move(lowered), run, options, execution); !done) {
    EndTogether(execution.place, done.error());
    Error error = done.error();
    error.hint = error.code == ErrorCode::interrupted ? launch.left_behind : error.hint;
    return error;
  }
  return execution;
}

}  // namespace tidemark
