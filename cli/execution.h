// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch.h"
#include "cli/one_batch.h"
#include "cli/opened_device.h"
#include "cli/rank_peak.h"
#include "models/job/job.h"
#include "profiler/execute/run.h"
#include "traces/trace.h"

namespace CLI {
class App;
}

namespace tidemark {

/// What `run` and `compare` execute, and how: the options that they share.
struct ExecutionOptions {
  std::string job_path;
  std::string device;  ///< "cuda": GPUs; else this machine's processors
  std::int64_t steps = 1;
  std::string data;      ///< path of a text; empty: random tokens
  std::string capacity;  ///< "512MiB"; empty: unlimited
  std::uint64_t seed = 0;
  bool verify = false;
  bool traces = false;               ///< those of all ranks are asked for
  std::string trace_path;            ///< where they are written (TraceOutput); empty: nowhere
  std::string hang_timeout = "20s";  ///< Watchdog; "0s": never
  std::string timed = "operations";  ///< of a GPU's work: "operations", or whole "steps" alone

  friend bool operator==(const ExecutionOptions&, const ExecutionOptions&) = default;
};
/// Refuses a number of steps that nobody waits for.
Status CheckExecution(const ExecutionOptions& options);
void AddExecutionOptions(CLI::App& app, ExecutionOptions& options);
/// --capacity, of a run that may run out of memory.
void AddCapacityOption(CLI::App& app, ExecutionOptions& options);
/// --timed, of a run on a GPU.
void AddTimedOption(CLI::App& app, ExecutionOptions& options);
/// --device: what it runs on. `without`: what it means to leave it out.
void AddDeviceOption(CLI::App& app, std::string& device, const std::string& without = "cpu");
/// Refuses a device that this machine does not have.
Status CheckDevice(const std::string& device);

/// A rank that cannot go on ends the run for all: the others may be waiting for it. Of one rank it does nothing.
void EndTogether(const Entered& place, const Error& error);

struct Execution {
  OpenedDevice met_on;  ///< of a rank that has come to the others through its GPU (LaunchOptions::meet_on_gpus)
  Entered place;
  RunOutcome outcome;                   ///< of this rank
  RankPeak peak;                        ///< the highest of all ranks, on rank 0 only
  std::vector<Trace> traces;            ///< of all ranks, on rank 0 only, where they are asked for or written
  std::vector<Budget> budgets;          ///< of all ranks, on rank 0 only
  std::optional<RunNumerics> numerics;  ///< with ExecutionOptions::verify
  std::string exchanges;                ///< by what ranks on GPUs exchange their memory (World::how)
  std::optional<Error> unwritten;       ///< why the traces could not be written

  /// Whether this process has something to say; one that has not ends with place.exit_code.
  bool reports() const { return place.world != nullptr && place.world->rank() == 0; }
};

/// Checks the job, starts its ranks (EnterWorld) and executes its first steps. What comes back is on every rank.
Result<Execution> Execute(const Job& job, const ExecutionOptions& options);

}  // namespace tidemark
