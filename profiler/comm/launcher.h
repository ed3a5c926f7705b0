// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"

namespace tidemark {

/// Who has started this process as one of several.
struct Launcher {
  enum class Kind : std::uint8_t {
    none,
    mpirun,    ///< Open MPI's own, also where a scheduler stands behind it
    srun,      ///< Slurm
    torchrun,  ///< itself, also as a task of Slurm, or whoever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
  };
  Kind kind = Kind::none;
  std::int64_t rank = 0, ranks = 0;
  std::int64_t local_ranks = 0;  ///< of torchrun: those on this machine
  bool speaks_pmi = false;       ///< of srun: MPI's ranks can find each other through it
  std::int64_t local_rank = 0;   ///< among those on this machine
};

/// From what launchers leave in the environment: `look` gives a variable's value, or nullptr.
Launcher FindLauncher(const std::function<const char*(const char* variable)>& look);
/// From this process's environment.
Launcher FindLauncher();

/// How a process comes together with the other ranks of a run.
enum class Meeting : std::uint8_t {
  alone,   ///< the only rank
  mpi,     ///< as the launcher's MPI has them
  nccl,    ///< by torchrun's variables alone, each rank on a GPU of its own (OpenNcclWorldFromEnvironment)
  starts,  ///< it is no rank: it starts them all, with mpirun
  none,    ///< nor does it: another process of the same launcher starts them
};
/// The processes of torchrun have no MPI in common: on processors the first one starts the ranks. Fails with bad_input
/// where a launcher has started another number of processes than `ranks`, with machine_cannot where they cannot meet.
Result<Meeting> MeetingOf(const Launcher& launcher, std::int64_t ranks, bool on_gpus);

}  // namespace tidemark
