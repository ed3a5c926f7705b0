// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "profiler/comm/communicator.h"
#include "profiler/execute/executor.h"
#include "sim/program/program.h"
#include "traces/trace.h"

namespace tidemark {

/// One step of a run: its program and its kind.
struct RunStep {
  const StepProgram* program = nullptr;
  std::string kind;  ///< first, second, steady
};

struct RunOptions {
  std::uint64_t seed = 0;
  std::string text{};               ///< to learn from, byte by byte; empty: random tokens
  std::optional<Bytes> capacity{};  ///< of each rank's device; nothing: as much as there is
  bool exact = false;               ///< every floating dtype is fp64
  bool keep_gradients = false;
};

struct RunOutcome {
  std::vector<StepOutcome> steps;  ///< this rank's; losses are means over all data-parallel ranks
  Trace trace;                     ///< this rank's
  Bytes allocator_peak, reserved_peak;
  Bytes mapped_peak;  ///< of the system's pages, as the device below the allocator counts them
  std::int64_t cache_flushes = 0;
  bool ran_out = false;                                   ///< some rank ran out of memory, in the last step
  std::map<ParameterKey, std::vector<double>> gradients;  ///< of the first step, with keep_gradients
};

/// Refuses what cannot be executed: pipelines, context parallelism, steps with an operation that has no kernel; and
/// programs that kernels disagree with; and a text that cannot be read. Nothing runs and nothing is allocated.
Status CheckExecutable(const Job& job, std::span<const RunStep> steps, const RunOptions& options);

/// Executes steps in a row on this rank; all ranks of the world call it alike.
Result<RunOutcome> RunSteps(const Job& job, std::span<const RunStep> steps, const RunOptions& options, World& world);

}  // namespace tidemark
