// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "models/job/job.h"
#include "profiler/comm/communicator.h"
#include "profiler/execute/model.h"

namespace tidemark {

// Ranks are numbered tensor parallel first, then context parallel, then data parallel, the shards of a replica side by
// side, then by their role in the pipeline. Experts are laid out over the ranks of a stage by themselves (Layout).

inline TensorParallelPlace TensorParallelPlaceOf(const Job& job, std::int64_t rank) {
  return {rank % job.layout.tp, job.layout.tp};
}
inline std::int64_t ShardOf(const Job& job, std::int64_t rank) {
  return rank / job.layout.tp % (job.layout.GradientRanks() / job.axes.shard.replicas);
}
/// Which of StepProgram::roles a rank runs.
inline std::size_t RoleOf(const Job& job, std::int64_t rank) {
  return static_cast<std::size_t>(rank / (job.Ranks() / job.layout.pp));
}

/// One group that a rank belongs to: how many ranks it has, and a number that no other group of the kind has.
struct RankGroup {
  std::int64_t size = 1, colour = 0;
};

/// By name, as programs name them: "dp", "tp", "cp", "pp", "replicas"; where several ranks have a layer's experts also
/// "ep", "etp", "ep x etp" and "edp".
std::map<std::string, RankGroup, std::less<>> RankGroupsOf(const Job& job, std::int64_t rank);

/// The same, as one of their ranks sees them.
using Communicators = std::map<std::string, std::unique_ptr<Communicator>, std::less<>>;

/// Of this rank of the world; all ranks call it.
Result<Communicators> GroupsOf(const Job& job, World& world);

}  // namespace tidemark
