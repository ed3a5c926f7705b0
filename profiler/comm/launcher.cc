// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/launcher.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/text.h"

namespace tidemark {

// Open MPI: "Environment variables set for your application" of mpirun(1). Slurm: "OUTPUT ENVIRONMENT VARIABLES" of
// srun(1): SLURM_STEP_NUM_TASKS is of the step, SLURM_NTASKS of the whole allocation; a batch script has SLURM_PROCID
// as well, but no task of a step. torchrun: "Environment Variables" of torch.distributed.run.
Launcher FindLauncher(const std::function<const char*(const char* variable)>& look) {
  const auto number = [&](const char* variable) {
    const char* text = look(variable);
    return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
  };
  if (number("OMPI_COMM_WORLD_SIZE") > 0) {
    return {Launcher::Kind::mpirun,
            number("OMPI_COMM_WORLD_RANK"),
            number("OMPI_COMM_WORLD_SIZE"),
            0,
            false,
            number("OMPI_COMM_WORLD_LOCAL_RANK")};
  }
  const bool meets = look("RANK") != nullptr && number("WORLD_SIZE") > 0 && look("MASTER_ADDR") != nullptr &&
                     look("MASTER_PORT") != nullptr;
  const bool elastic = meets && look("TORCHELASTIC_RUN_ID") != nullptr;  // Slurm's variables are torchrun's own then
  const bool pmi = look("PMIX_RANK") != nullptr || look("PMI_RANK") != nullptr;
  const std::int64_t tasks =
      number("SLURM_STEP_NUM_TASKS") > 0 || !pmi ? number("SLURM_STEP_NUM_TASKS") : number("SLURM_NTASKS");
  if (!elastic && look("SLURM_PROCID") != nullptr &&
      (tasks > 1 || (tasks == 1 && pmi))) {  // one without PMI is a shell
    return {Launcher::Kind::srun, number("SLURM_PROCID"), tasks, 0, pmi, number("SLURM_LOCALID")};
  }
  if (meets) {
    const std::int64_t ranks = number("WORLD_SIZE"), local = number("LOCAL_WORLD_SIZE");
    return {Launcher::Kind::torchrun, number("RANK"), ranks, local > 0 ? local : ranks, false, number("LOCAL_RANK")};
  }
  return {};
}

Launcher FindLauncher() {
  return FindLauncher([](const char* variable) { return std::getenv(variable); });
}

Result<Meeting> MeetingOf(const Launcher& launcher, std::int64_t ranks, bool on_gpus) {
  using Kind = Launcher::Kind;
  if (launcher.kind == Kind::none) {
    return ranks == 1 ? Meeting::alone : Meeting::starts;
  }
  if (launcher.ranks != ranks) {
    return BadInput(
        fmt::format("the job has {}, and the launcher has started {}", Counted(ranks, "rank"), launcher.ranks),
        fmt::format("start {}, or none: tidemark run starts mpirun itself", Counted(ranks, "process")));
  }
  if (launcher.kind == Kind::srun && !launcher.speaks_pmi) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("srun has started {} that MPI cannot bring together", Counted(ranks, "process")),
                 "srun --mpi=pmix; srun --mpi=list shows what there is"};
  }
  if (launcher.kind != Kind::torchrun) {
    return Meeting::mpi;
  }
  if (ranks == 1) {
    return Meeting::alone;
  }
  if (on_gpus) {
    return Meeting::nccl;
  }
  if (launcher.local_ranks < ranks) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("torchrun has started {} of {} processes here, and MPI cannot bring them together over "
                             "several machines",
                             launcher.local_ranks, ranks),
                 "start them with mpirun or srun --mpi=pmix"};
  }
  return launcher.rank == 0 ? Meeting::starts : Meeting::none;
}

}  // namespace tidemark
