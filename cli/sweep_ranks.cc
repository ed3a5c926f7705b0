// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_ranks.h"

#include "profiler/comm/launcher.h"

namespace tidemark {

Result<SweepRanks> SweepRanks::Meet() {
  SweepRanks ranks;
  const Launcher launcher = FindLauncher();
  if (launcher.kind == Launcher::Kind::mpirun || (launcher.kind == Launcher::Kind::srun && launcher.speaks_pmi)) {
    TIDEMARK_ASSIGN(ranks.world_, OpenMpiWorld());
    TIDEMARK_ASSIGN(ranks.counter_, OpenSharedCounter());
  }
  return ranks;
}

Status SweepRanks::Gather(Status own) {
  const double failed = own ? 0 : static_cast<double>(own.error().code);
  const double worst = world_ ? world_->Highest(failed) : failed;
  if (own && worst > 0) {
    return Error{static_cast<ErrorCode>(static_cast<int>(worst)), "", "another rank has failed, and says why", ""};
  }
  return own;
}

Result<std::optional<std::int64_t>> SweepRanks::Next(const std::vector<std::int64_t>& chunks) {
  std::int64_t next = taken_;
  if (counter_) {
    TIDEMARK_ASSIGN(next, counter_->Next());
  } else {
    ++taken_;
  }
  return next < std::ssize(chunks) ? std::optional(chunks[static_cast<std::size_t>(next)]) : std::nullopt;
}

}  // namespace tidemark
