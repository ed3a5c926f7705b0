// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/rank_groups.h"

namespace tidemark {

std::map<std::string, RankGroup, std::less<>> RankGroupsOf(const Job& job, std::int64_t rank) {
  const Layout& layout = job.layout;
  const std::int64_t of_stage = job.Ranks() / layout.pp;
  const auto stage = static_cast<std::int64_t>(RoleOf(job, rank));
  const std::int64_t part = TensorParallelPlaceOf(job, rank).rank;
  const std::int64_t sharing = rank / layout.tp / layout.cp;  // a pipeline's stages do not share sequences
  const std::int64_t shards = layout.GradientRanks() / job.axes.shard.replicas;
  const std::int64_t replica = rank / layout.tp / shards;  // counted through all stages
  std::map<std::string, RankGroup, std::less<>> groups = {
      {"tp", {layout.tp, rank / layout.tp}},
      {"cp", {layout.cp, sharing * layout.tp + part}},
      {"dp", {shards, replica * layout.tp + part}},
      {"replicas", {job.axes.shard.replicas, (stage * shards + ShardOf(job, rank)) * layout.tp + part}},
      {"pp", {layout.pp, rank % of_stage}},
  };
  if (ExpertsOf(job.network) != nullptr && layout.ExpertRanks() > 1) {
    const std::int64_t etp = layout.ExpertTp(), all = layout.ExpertRanks();
    groups["etp"] = {etp, rank / etp};
    groups["ep"] = {layout.ep, rank / all * etp + rank % etp};
    groups["ep x etp"] = {all, rank / all};
    groups["edp"] = {layout.ExpertGradientRanks(), stage * all + rank % of_stage % all};
  }
  return groups;
}

Result<Communicators> GroupsOf(const Job& job, World& world) {
  Communicators groups;
  for (const auto& [name, group] : RankGroupsOf(job, world.rank())) {
    TIDEMARK_ASSIGN(groups[name], world.Split(group.colour));
  }
  return groups;
}

}  // namespace tidemark
