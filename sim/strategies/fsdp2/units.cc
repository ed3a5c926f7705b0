// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp2/units.h"

#include <algorithm>

namespace tidemark {
namespace {

std::int64_t Padded(const Parameter& parameter, std::int64_t shards) {
  return RoundUp(parameter.ShardedRows(), shards) * (parameter.elements / parameter.ShardedRows());
}

void Add(UnitSize& size, const Parameter& parameter, std::int64_t shards) {
  const std::int64_t padded = Padded(parameter, shards);
  size.elements += parameter.elements;
  size.padded += padded;
  size.trainable_padded += parameter.trainable ? padded : 0;
}

}  // namespace

Units::Units(Role& role) : stage(&role.stage) {
  const Layout& layout = role.job.layout;
  const auto add = [&](const char* name, const char* of, std::int64_t ranks, std::int64_t stride) {
    meshes.push_back({of, ranks, role.AddGroup(name, ranks, stride), std::vector<UnitSize>(stage->runs.size())});
  };
  add("dp", "", layout.GradientRanks() / role.job.axes.shard.replicas, layout.tp);
  if (layout.ep > 1) {
    add("edp", " experts of", layout.ExpertGradientRanks(), layout.ExpertRanks());
  }
  for (const Parameter& parameter : stage->runs.back().block().parameters) {
    tied |= parameter.tied;
  }
  for (std::size_t run = 0; run < stage->runs.size(); ++run) {
    const bool joins_embedding = tied && run + 1 == stage->runs.size();
    for (const Parameter& parameter : stage->runs[run].block().parameters) {
      ShardMesh& mesh = meshes[MeshOf(parameter)];
      if (!parameter.tied) {
        Add(mesh.sizes[joins_embedding ? 0 : run], parameter, mesh.shards);
      }
    }
  }
}

bool Units::HasParameters(std::int64_t position) const {
  const std::size_t run = stage->RunOf(Of(position));
  return std::any_of(meshes.begin(), meshes.end(), [&](const ShardMesh& mesh) { return mesh.sizes[run].elements > 0; });
}

std::vector<ParameterGroup> Units::GroupsOf(std::int64_t unit) const {
  std::vector<ParameterGroup> groups;
  for (std::size_t mesh = 0; mesh < meshes.size() && Opens(unit); ++mesh) {
    if (SizeOf({unit, mesh}).elements > 0) {
      groups.push_back({unit, mesh});
    }
  }
  return groups;
}

std::vector<ParameterGroup> Units::GroupsInReverse(std::int64_t unit) const {
  std::vector<ParameterGroup> groups = GroupsOf(unit);
  std::reverse(groups.begin(), groups.end());
  return groups;
}

std::int64_t Units::PaddedOf(const Parameter& parameter) const {
  return Padded(parameter, meshes[MeshOf(parameter)].shards);
}

std::int64_t Units::ShardOf(const Parameter& parameter) const {
  return PaddedOf(parameter) / meshes[MeshOf(parameter)].shards;
}

std::vector<std::int64_t> Units::TrainedShardsOf(const Role& role, std::int64_t position) const {
  std::vector<std::int64_t> elements;
  if (Opens(position)) {
    const auto append = [&](const ParameterAt& at) { elements.push_back(ShardOf(ParameterOf(role, at))); };
    ForEachTrained(role, position, append);
    if (tied && position == 0) {
      ForEachTrained(role, stage->blocks - 1, append);
    }
  }
  return elements;
}

Holding Units::Rows(const ShardMesh& mesh) const {
  Holding rows;
  rows.cut = Cut::rows;
  rows.ranks = mesh.shards;
  return rows;
}

std::vector<Holding> Units::Holds(std::size_t mesh, Parts parts, bool frozen, bool masters) const {
  std::vector<Holding> holds;
  for (const StageRun& run : stage->runs) {
    const bool takes_head = tied && holds.empty();
    Holding& holding = holds.emplace_back(Rows(meshes[mesh]));
    holding.parts = parts;
    holding.frozen = frozen;
    holding.masters = masters;
    Append(run.block(), mesh, frozen, holding.of);
    if (takes_head) {
      Append(stage->runs.back().block(), mesh, frozen, holding.of);
    }
  }
  return holds;
}

std::vector<Holding> Units::HoldsTrained(std::int64_t position) const {
  const std::size_t run = stage->RunOf(position);
  std::vector<Holding> holds;
  if (meshes.size() == 1) {
    holds.push_back(Holds(0, Parts::own, false, false)[run]);
    return holds;
  }
  const auto append = [&](const Block& block) {
    std::size_t last = meshes.size();
    for (const Parameter& parameter : block.parameters) {
      if (!IsTrained(parameter)) {
        continue;
      }
      if (const std::size_t mesh = MeshOf(parameter); mesh != last) {
        holds.push_back(Rows(meshes[mesh]));
        last = mesh;
      }
      holds.back().of.push_back({block.name + "." + parameter.name});
    }
  };
  append(stage->runs[run].block());
  if (tied && position == 0) {
    append(stage->runs.back().block());
  }
  return holds;
}

void Units::Append(const Block& block, std::size_t mesh, bool frozen, std::vector<HeldRun>& held) const {
  if (meshes.size() == 1) {
    held.push_back({block.name});
    return;
  }
  for (const Parameter& parameter : block.parameters) {
    if (MeshOf(parameter) == mesh && !parameter.tied && (parameter.trainable || frozen)) {
      held.push_back({block.name + "." + parameter.name});
    }
  }
}

}  // namespace tidemark
