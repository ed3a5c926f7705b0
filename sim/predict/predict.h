// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "sim/engine/evaluation.h"
#include "sim/lower/lower.h"
#include "sim/memory/capacity.h"
#include "sim/predict/communication.h"
#include "sim/predict/lints.h"
#include "sim/predict/program_length.h"
#include "sim/predict/steps.h"
#include "traces/place.h"
#include "traces/trace.h"

namespace tidemark {

enum class Engine : std::uint8_t { simulate, closed_form, both };

struct PredictOptions {
  std::vector<StepRun> steps = std::vector<StepRun>(1);  ///< in order, one after the other; by default one steady step
  Engine engine = Engine::simulate;
  bool traces = true;                      ///< keep each role's trace (simulation only)
  bool minimum = false;                    ///< ask for the smallest device that is enough (simulation only)
  std::optional<Bytes> capacity;           ///< ask what happens on a device of this size (simulation only)
  std::int64_t most_events = kMostEvents;  ///< that a simulation may have: more are refused
};

/// One role. What only a simulated allocator knows is absent when only the closed form ran.
struct RolePrediction {
  std::string role;
  std::int64_t ranks = 1;
  MemoryPeak peak;
  std::int64_t peak_step = 0;            ///< the step that first reaches the peak, counted from 0
  std::optional<Bytes> reserved;         ///< highest reservation of the job's allocator on an unlimited device
  std::optional<Bytes> reserved_late;    ///< the same by LateReuse; nothing where no memory is freed in use
  std::optional<Bytes> allocator_bytes;  ///< its highest allocated total, rounding included
  std::optional<Bytes> minimum;          ///< smallest device limit at which it succeeds, where that was asked for
  std::optional<Trace> trace;
};

/// What becomes of the worst role under PredictOptions::capacity: the first role to run out, else the one that flushed
/// most.
struct CapacityOutcome {
  Outcome outcome;
  std::string role;
  PhasePlace at;  ///< of the request that failed
};

/// One engine's answer and how long it took, median of five runs from the job on.
struct EngineRun {
  StepsEvaluation evaluation;
  Nanos duration;
};

/// Equal steps among those that were asked for.
struct StepPrediction {
  StepRun run;
  Nanos time;                     ///< of one of them
  Bytes allocated;                ///< the worst role's peak within them
  std::optional<Bytes> reserved;  ///< the most that its allocator has reserved within them
};

struct Prediction {
  std::vector<RolePrediction> roles;
  std::size_t worst_role = 0;                   ///< most allocated bytes; of equals the first
  std::vector<StepPrediction> steps;            ///< one per run of PredictOptions::steps
  StepTime time;                                ///< of all steps
  std::vector<CommunicationRow> communication;  ///< of the worst role, in all steps
  double model_flops = 0,
         hardware_flops = 0;  ///< matrix products and attention, per rank, in all steps, mean over the roles
  std::vector<Lint> lints;
  std::optional<CapacityOutcome> capacity;
  std::optional<EngineRun> closed_form, simulated;  ///< both with Engine::both
  bool engines_agree = true;
};

/// What the data leaves over at the end of an epoch comes once, so that no second step of that kind follows it.
Status CheckRepeats(const Job& job, std::int64_t steps);

/// Lowers, prices and evaluates a job. There is at least one step.
Result<Prediction> Predict(const Job& job, const PredictOptions& options);

}  // namespace tidemark
