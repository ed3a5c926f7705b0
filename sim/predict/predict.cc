// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "base/text.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/memory/device_memory.h"
#include "sim/predict/program_length.h"
#include "sim/predict/sharding.h"
#include "sim/predict/trace_recorder.h"
#include "sim/program/frees_in_use.h"

namespace tidemark {
namespace {

/// Plays all steps, one after the other; `recorders`, one per role, hear them. `reserved` becomes the most that each
/// role's allocator has reserved in each run of equal steps. Without `traces` nobody will ask how tensors are sharded.
Result<StepsEvaluation> SimulateSteps(const Job& job, std::span<const LoweredRun> runs, bool traces,
                                      std::vector<TraceRecorder>& recorders,
                                      std::vector<std::vector<Bytes>>& reserved) {
  std::vector<Listener*> listeners;
  for (TraceRecorder& recorder : recorders) {
    listeners.push_back(&recorder);
  }
  std::vector<StepRun> kinds;
  std::vector<Evaluation> evaluations;
  Nanos start;
  for (const LoweredRun& lowered : runs) {
    kinds.push_back(lowered.run);
    const auto shardings = traces ? ShardingsOf(job, lowered.program)
                                  : std::vector<std::vector<std::string>>(lowered.program.roles.size());
    for (std::int64_t i = 0; i < lowered.run.count; ++i) {
      for (std::size_t role = 0; role < recorders.size(); ++role) {
        TIDEMARK_TRY(
            recorders[role].BeginStep(lowered.program.roles[role], Name(lowered.run.kind), start, shardings[role]));
      }
      Evaluation evaluation = Simulate(lowered.program, lowered.costs, listeners);
      start += evaluation.time.step;
      reserved.resize(kinds.size(), std::vector<Bytes>(recorders.size()));
      for (std::size_t role = 0; role < recorders.size(); ++role) {
        reserved.back()[role] = std::max(reserved.back()[role], recorders[role].reserved_in_step());
      }
      for (TraceRecorder& recorder : recorders) {
        recorder.EndStep(start);
      }
      if (i == 0) {
        evaluations.push_back(std::move(evaluation));
      }
    }
  }
  return InARow(kinds, std::move(evaluations));
}

/// Evaluates from the job on, program building included, five times over; the median is robust against a busy machine.
template <class Evaluate>
EngineRun TimeEngine(const Job& job, std::span<const StepRun> steps, Evaluate evaluate) {
  EngineRun run;
  std::array<std::int64_t, 5> durations{};
  for (std::int64_t& duration : durations) {
    const auto start = std::chrono::steady_clock::now();
    const Result<std::vector<LoweredRun>> lowered = LowerRuns(job, steps);
    TIDEMARK_CHECK(lowered.ok());
    run.evaluation = evaluate(*lowered);
    duration = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  }
  std::sort(durations.begin(), durations.end());
  run.duration = Nanos(durations[2]);
  return run;
}

EngineRun TimeClosedForm(const Job& job, std::span<const StepRun> steps) {
  return TimeEngine(job, steps, [](std::span<const LoweredRun> runs) { return EvaluateClosedForm(runs); });
}

EngineRun TimeSimulation(const Job& job, std::span<const StepRun> steps) {
  return TimeEngine(job, steps, [&job](std::span<const LoweredRun> runs) {
    std::vector<TraceRecorder> nobody;
    std::vector<std::vector<Bytes>> reserved;
    return *SimulateSteps(job, runs, false, nobody, reserved);
  });
}

/// The outcome that decides: running out before anything else, then the most flushes.
bool IsWorse(const Outcome& a, const Outcome& b) {
  return a.succeeded() != b.succeeded() ? !a.succeeded() : a.cache_flushes > b.cache_flushes;
}

void AddRecorded(Prediction& prediction, std::vector<TraceRecorder>& recorders, const Job& job,
                 const PredictOptions& options) {
  for (std::size_t i = 0; i < recorders.size(); ++i) {
    TraceRecorder& recorder = recorders[i];
    RolePrediction& role = prediction.roles[i];
    role.reserved = recorder.allocator().reserved_peak();
    role.reserved_late = recorder.reserved_late();
    role.allocator_bytes = recorder.allocator().allocated_peak();
    if (options.minimum) {  // takes longer than all else
      role.minimum = MinimumCapacity(recorder.log(), job.allocator);
    }
    if (options.capacity) {
      const Outcome outcome = Replay(recorder.log(), job.allocator, *options.capacity);
      if (!prediction.capacity || IsWorse(outcome, prediction.capacity->outcome)) {
        const PhasePlace at = outcome.succeeded() ? PhasePlace() : recorder.PlaceOfRequest(outcome.failed_request);
        prediction.capacity = CapacityOutcome{outcome, role.role, at};
      }
    }
    if (options.traces) {
      Trace trace = std::move(recorder).TakeTrace();
      trace.device_memory = job.machine.device_memory;
      role.trace = std::move(trace);
    }
  }
}

/// Where some step frees memory in use: what the device has for the role's allocator. A processor has done its work
/// when the host goes on.
std::optional<Bytes> LateCapacity(const Job& job, std::span<const LoweredRun> runs, std::size_t role,
                                  std::optional<Bytes> asked) {
  const bool any =
      std::ranges::any_of(runs, [role](const LoweredRun& lowered) { return FreesInUse(lowered.program.roles[role]); });
  if (!any || !job.machine.accelerator) {
    return std::nullopt;
  }
  // A fraction is one of the whole device, and leaves room for the context.
  const Bytes context = job.allocator.memory_fraction > 0 ? Bytes(0) : job.machine.context.high;
  const Bytes capacity = asked.value_or(job.machine.device_memory - context);
  return capacity > Bytes(0) ? std::optional(capacity) : std::nullopt;
}

void AddCommunication(std::vector<CommunicationRow>& all, const Program& program, std::int64_t steps) {
  for (const CommunicationRow& row : CountCommunication(program)) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const CommunicationRow& other) {
      return other.kind == row.kind && other.group == row.group && other.dtype == row.dtype;
    });
    CommunicationRow& sum =
        same != all.end() ? *same : all.emplace_back(CommunicationRow{row.kind, row.group, row.dtype, 0, {}, {}});
    sum.count += row.count * steps;
    sum.payload += row.payload * steps;
    sum.wire += row.wire * steps;
  }
}

void AddCounts(Prediction& prediction, std::span<const LoweredRun> runs) {
  for (const LoweredRun& lowered : runs) {
    AddCommunication(prediction.communication, lowered.usual().roles[prediction.worst_role], lowered.run.count);
    const auto steps = static_cast<double>(lowered.run.count);
    const auto roles = static_cast<double>(lowered.program.roles.size());
    for (const Program& program : lowered.usual().roles) {
      const ProgramFlops flops = CountFlops(program);
      prediction.model_flops += flops.model / roles * steps;
      prediction.hardware_flops += flops.hardware / roles * steps;
    }
  }
}

void AddRoles(Prediction& prediction, const StepsEvaluation& evaluation, const StepProgram& program) {
  for (std::size_t i = 0; i < program.roles.size(); ++i) {
    RolePrediction role;
    role.role = program.roles[i].role;
    role.ranks = program.roles[i].ranks;
    role.peak = evaluation.whole.roles[i];
    role.peak_step = evaluation.peak_steps[i];
    prediction.roles.push_back(std::move(role));
    if (prediction.roles[i].peak.allocated > prediction.roles[prediction.worst_role].peak.allocated) {
      prediction.worst_role = i;
    }
  }
}

void AddSteps(Prediction& prediction, const StepsEvaluation& evaluation, std::span<const StepRun> runs,
              const std::vector<std::vector<Bytes>>& reserved) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    StepPrediction step{runs[i], evaluation.runs[i].time.step, {}, {}};
    step.allocated = evaluation.runs[i].roles[prediction.worst_role].allocated;
    if (!reserved.empty()) {
      step.reserved = reserved[i][prediction.worst_role];
    }
    prediction.steps.push_back(step);
  }
}

Error TooManySteps(std::int64_t steps, std::int64_t leaves, std::int64_t most) {
  return BadInput(fmt::format("--steps: {} steps of {} events each are more than the {} that a simulation keeps",
                              Grouped(steps), Grouped(leaves), Grouped(most)),
                  "ask for fewer steps; predict --engine closed-form does not grow with steps");
}

Status CheckLength(std::span<const LoweredRun> runs, const Job& job, std::int64_t steps, std::int64_t most) {
  std::int64_t left = most;
  for (const LoweredRun& lowered : runs) {
    TIDEMARK_TRY(CheckLength(lowered.program, job,
                             "use --engine closed-form, which does not grow with microbatches, or fewer microbatches",
                             most));
    const std::int64_t leaves = CountEvents(lowered.program);
    if (leaves > left / lowered.run.count) {
      return TooManySteps(steps, leaves, most);
    }
    left -= leaves * lowered.run.count;
  }
  return Done{};
}

/// Of a rank's tensors. Half of the addresses that an allocator is simulated with may be gaps.
constexpr Bytes kMostAddressed = kPretendAddresses / 2;

Status CheckAddresses(std::span<const LoweredRun> runs) {
  const auto holds_much = [](const Program& role) {
    return std::accumulate(role.buffers.begin(), role.buffers.end(), Bytes(), [](Bytes sum, const Buffer& buffer) {
             return sum + buffer.bytes() * buffer.count();
           }) > kMostAddressed;
  };
  const bool may_be_too_much = std::any_of(runs.begin(), runs.end(), [&](const LoweredRun& run) {
    return std::any_of(run.program.roles.begin(), run.program.roles.end(), holds_much);
  });
  if (!may_be_too_much) {
    return Done{};
  }
  for (const MemoryPeak& role : EvaluateClosedForm(runs).whole.roles) {
    if (role.allocated > kMostAddressed) {
      return BadInput(fmt::format("a rank of this job holds {}, and allocators are simulated up to {}",
                                  Text(role.allocated), Text(kMostAddressed)),
                      "use --engine closed-form, which asks no allocator, or a smaller sequence_length or "
                      "micro_batch_size");
    }
  }
  return Done{};
}

}  // namespace

Status CheckRepeats(const Job& job, std::int64_t steps) {
  if (steps > 1 && job.last_window.microbatches > 0) {
    return BadKey("last_window",
                  fmt::format("the last window of an epoch comes once, and not {} times", Grouped(steps)),
                  "leave out last_window, or take one step: --steps 1");
  }
  return Done{};
}

Result<Prediction> Predict(const Job& job, const PredictOptions& options) {
  TIDEMARK_TRY(CheckRepeats(job, CountSteps(options.steps)));
  TIDEMARK_ASSIGN(const std::vector<LoweredRun> runs, LowerRuns(job, options.steps));
  Prediction prediction;
  std::vector<TraceRecorder> recorders;
  std::vector<std::vector<Bytes>> reserved;
  StepsEvaluation evaluation;
  if (options.engine == Engine::closed_form) {
    evaluation = EvaluateClosedForm(runs);
  } else {
    TIDEMARK_TRY(CheckLength(runs, job, CountSteps(options.steps), options.most_events));
    TIDEMARK_TRY(CheckAddresses(runs));
    for (std::size_t i = 0; i < runs.front().program.roles.size(); ++i) {
      recorders.emplace_back(job.allocator, LateCapacity(job, runs, i, options.capacity));
    }
    TIDEMARK_ASSIGN(evaluation, SimulateSteps(job, runs, options.traces, recorders, reserved));
  }
  prediction.time = evaluation.whole.time;
  AddRoles(prediction, evaluation, runs.front().program);
  AddCounts(prediction, runs);
  AddSteps(prediction, evaluation, options.steps, reserved);
  prediction.lints = LintJob(job);
  AddRecorded(prediction, recorders, job, options);
  if (options.engine == Engine::both) {
    prediction.closed_form = TimeClosedForm(job, options.steps);
    prediction.simulated = TimeSimulation(job, options.steps);
    prediction.engines_agree = prediction.closed_form->evaluation == prediction.simulated->evaluation &&
                               prediction.simulated->evaluation == evaluation;
  }
  return prediction;
}

}  // namespace tidemark
