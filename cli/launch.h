// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "cli/rank_link.h"
#include "models/job/job.h"
#include "profiler/comm/communicator.h"

namespace tidemark {

struct LaunchOptions {
  Nanos hang_timeout{20'000'000'000};  ///< SupervisedRun::hang_timeout
  std::string left_behind;             ///< SupervisedRun::left_behind
  std::vector<std::string> inputs;     ///< files that every rank reads by itself; empty ones are none
  /// Of ranks on GPUs: makes the world of processes that torchrun's variables alone bring together. Empty: ranks run on
  /// processors.
  std::function<Result<std::unique_ptr<World>>()> meet_on_gpus{};
};

/// What a process is in a run: one of its ranks, or the one that has started them and stayed until they ended.
struct Entered {
  std::optional<RankLink> link;  ///< of a rank
  std::unique_ptr<World> world;  ///< of a rank
  int exit_code = 0;             ///< of the other: what the ranks, which have reported themselves, came to
};

/// The world of a job: one rank needs no launcher; under mpirun or srun its processes are the ranks; else this process
/// starts the same command line under mpirun once for each rank, and supervises them (Supervise). The processes of
/// torchrun, which have no MPI in common, are the ranks on GPUs; on processors the first one starts them, and the
/// others have nothing to do. Fails as MeetingOf and Supervise do, with bad_input where an input is a pipe, with
/// machine_cannot where there is no mpirun.
Result<Entered> EnterWorld(const Job& job, const LaunchOptions& options);

/// Why times of so many ranks on one machine are no measure of the job; "": they are.
std::string TimeDoubt(std::int64_t ranks_here);

}  // namespace tidemark
