// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "profiler/capture/annotations.h"
#include "profiler/capture/budget.h"
#include "profiler/capture/gpu_capture.h"
#include "profiler/capture/outside_view.h"
#include "profiler/comm/communicator.h"
#include "profiler/device/device.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/progress.h"
#include "profiler/execute/rank_groups.h"
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
  std::int64_t kept_update = 1;            ///< which update's, from 1
  const ExpertChoices* choices = nullptr;  ///< ExecutorOptions
  Poison again = Poison::nothing;          ///< what is filled with NaNs where a program runs that has run before
  Device* device = nullptr;                ///< where; nothing: the processor that this program runs on
  bool time_work = true;                   ///< ExecutorOptions
  GpuCapture* capture = nullptr;           ///< of the device's work (ExecutorOptions); nothing: there is none
  MakeOutsideView watch{};                 ///< takes its budget; nothing: nobody does
  RankProgress* progress = nullptr;        ///< where this rank says what it is doing; nothing: nowhere
  Annotations* annotations = nullptr;      ///< told what this rank does and where its tensors lie; nothing: nobody
  Trace blank{};                           ///< as which its trace begins: origin, title, job
  Recorder::Keep keep_trace{};             ///< gets the trace while it grows; nothing: it is only returned
};

/// The model as a rank holds it.
Result<Model> ModelOf(const Job& job, const StepProgram& program, std::int64_t rank);

struct RunOutcome {
  std::vector<StepOutcome> steps;  ///< this rank's; losses are means over all ranks that take one, told to all
  Trace trace;                     ///< this rank's
  Bytes allocator_peak, reserved_peak;
  std::int64_t cache_flushes = 0;     ///< of the allocator, the vain one before it ran out included
  Bytes mapped_peak;                  ///< of the system's pages, as the device below the allocator counts them
  WorkClock clock = WorkClock::host;  ///< what says when the trace's streams were busy
  std::optional<Budget> budget{};     ///< of this rank, with RunOptions::watch
  std::vector<std::string> notes{};   ///< of this rank's device
  bool ran_out = false;               ///< some rank ran out of memory, in the last step
  ParameterParts gradients;           ///< this rank's, with keep_gradients
  ExpertChoices choices{};            ///< of its tokens in the first step, with keep_gradients
};

/// Refuses what the executor has no arithmetic for, programs that kernels disagree with, and a text that cannot be
/// learned from. Nothing runs, and no tensor is allocated.
Status CheckExecutable(const Job& job, std::span<const RunStep> steps, const RunOptions& options);

/// Executes steps in a row on this rank; all ranks of the world call it alike. Memory is filled with NaNs the first
/// time that a program runs, which shows what is used before it was written or after it was freed; executed again, the
/// program takes the time of its own work alone (RunOptions::again).
Result<RunOutcome> RunSteps(const Job& job, std::span<const RunStep> steps, const RunOptions& options, World& world);

}  // namespace tidemark
