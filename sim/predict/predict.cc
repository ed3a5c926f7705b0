// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/text.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/predict/trace_recorder.h"

namespace tidemark {
namespace {

/// Evaluates from the job on, program building included, five times over; the median is robust against a busy machine.
template <class Evaluate>
EngineRun TimeEngine(const Job& job, StepKind step, Evaluate evaluate) {
  EngineRun run;
  std::array<std::int64_t, 5> durations{};
  for (std::int64_t& duration : durations) {
    const auto start = std::chrono::steady_clock::now();
    const Result<StepProgram> program = Lower(job, step);
    TIDEMARK_CHECK(program.ok());
    run.evaluation = evaluate(*program, PriceAll(*program, job.machine));
    duration = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  }
  std::sort(durations.begin(), durations.end());
  run.duration = Nanos(durations[2]);
  return run;
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
    role.allocator_bytes = recorder.allocator().allocated_peak();
    role.minimum = MinimumCapacity(recorder.log(), job.allocator);
    if (options.capacity) {
      const Outcome outcome = Replay(recorder.log(), job.allocator, *options.capacity);
      if (!prediction.capacity || IsWorse(outcome, prediction.capacity->outcome)) {
        const std::string phase = outcome.succeeded() ? "" : recorder.PhaseOf(outcome.failed_request);
        prediction.capacity = CapacityOutcome{outcome, role.role, phase};
      }
    }
    if (options.traces) {
      Trace trace = std::move(recorder).TakeTrace(prediction.time.step);
      trace.device_memory = job.machine.device_memory;
      role.trace = std::move(trace);
    }
  }
}

Evaluation SimulateAndRecord(const StepProgram& step, const std::vector<Costs>& costs, const Job& job,
                             std::vector<TraceRecorder>& recorders) {
  std::vector<Listener*> listeners;
  recorders.reserve(step.roles.size());
  for (const Program& program : step.roles) {
    listeners.push_back(&recorders.emplace_back(program, job.allocator));
  }
  return Simulate(step, costs, listeners);
}

void AddCounts(Prediction& prediction, const StepProgram& step) {
  for (std::size_t i = 1; i < prediction.roles.size(); ++i) {
    if (prediction.roles[i].peak.allocated > prediction.roles[prediction.worst_role].peak.allocated) {
      prediction.worst_role = i;
    }
  }
  prediction.communication = CountCommunication(step.roles[prediction.worst_role]);
  const auto roles = static_cast<double>(step.roles.size());
  for (const Program& program : step.roles) {
    const ProgramFlops flops = CountFlops(program);
    prediction.model_flops += flops.model;
    prediction.hardware_flops += flops.hardware;
  }
  prediction.model_flops /= roles;
  prediction.hardware_flops /= roles;
}

/// A simulation keeps every event: this many take about a gigabyte and some seconds.
constexpr std::int64_t kMostLeaves = 20'000'000;

Status CheckLength(const StepProgram& step, const Job& job) {
  std::int64_t leaves = 0;
  for (const Program& program : step.roles) {
    leaves += CountLeaves(program);
  }
  if (leaves > kMostLeaves) {
    return BadKey("accumulation_steps",
                  fmt::format("with {} microbatches a step has {} events, more than the {} that a simulation keeps",
                              Grouped(job.accumulation_steps), Grouped(leaves), Grouped(kMostLeaves)),
                  "use --engine closed-form, which does not grow with microbatches, or fewer microbatches");
  }
  return Done{};
}

}  // namespace

Result<Prediction> Predict(const Job& job, const PredictOptions& options) {
  TIDEMARK_ASSIGN(const StepProgram step, Lower(job, options.step));
  if (options.engine != Engine::closed_form) {
    TIDEMARK_TRY(CheckLength(step, job));
  }
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  Prediction prediction;
  std::vector<TraceRecorder> recorders;
  const Evaluation evaluation = options.engine == Engine::closed_form ? EvaluateClosedForm(step, costs)
                                                                      : SimulateAndRecord(step, costs, job, recorders);
  prediction.time = evaluation.time;
  for (std::size_t i = 0; i < step.roles.size(); ++i) {
    RolePrediction role;
    role.role = step.roles[i].role;
    role.ranks = step.roles[i].ranks;
    role.peak = evaluation.roles[i];
    prediction.roles.push_back(std::move(role));
  }
  AddCounts(prediction, step);
  prediction.lints = LintJob(job);
  AddRecorded(prediction, recorders, job, options);
  if (options.engine == Engine::both) {
    prediction.closed_form =
        TimeEngine(job, options.step, [](const StepProgram& program, const std::vector<Costs>& prices) {
          return EvaluateClosedForm(program, prices);
        });
    prediction.simulated = TimeEngine(
        job, options.step,
        [](const StepProgram& program, const std::vector<Costs>& prices) { return Simulate(program, prices); });
    prediction.engines_agree = prediction.closed_form->evaluation == prediction.simulated->evaluation &&
                               prediction.simulated->evaluation == evaluation;
  }
  return prediction;
}

}  // namespace tidemark
