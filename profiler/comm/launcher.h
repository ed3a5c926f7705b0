// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace tidemark {

/// Who has started this process as one of several.
struct Launcher {
  enum class Kind : std::uint8_t {
    none,
    mpirun,    ///< Open MPI's own, also where a scheduler stands behind it
    srun,      ///< Slurm
    torchrun,  ///< whoever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
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

}  // namespace tidemark
