// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// Elements of what one unit has on one mesh. The dimension of each parameter that is sharded is padded to a multiple
/// of the mesh's ranks before it is cut (fully_shard's FSDPParam), so a gathered unit is larger than its parameters.
struct UnitSize {
  std::int64_t elements = 0, padded = 0;
  std::int64_t trainable_padded = 0;
};

/// Ranks that parameters are sharded over: all that gradients are summed over (torchtitan's mesh fsdp), and for experts
/// that are divided over ranks those with the same experts (efsdp).
struct ShardMesh {
  std::string of;           ///< what its buffers' names have in front of a block's: nothing, or " experts of"
  std::int64_t shards = 1;  ///< ranks
  GroupId group;
  std::vector<UnitSize> sizes;  ///< per run of the stage
};

/// A unit's parameters on one mesh, which are communicated together (FSDPParamGroup): the position of the unit's first
/// block, and the mesh's index.
struct ParameterGroup {
  std::int64_t unit = 0;
  std::size_t mesh = 0;
};

/// The units of a stage: one per block, except that a tied head joins the embedding's and leaves its own empty. A unit
/// is known by the position of its first block. A block without parameters is no unit.
struct Units {
  explicit Units(Role& role);

  const Stage* stage;
  std::vector<ShardMesh> meshes;  ///< fully_shard's order of a layer's groups: experts' is the second
  bool tied = false;

  /// The unit that the block at `position` belongs to.
  std::int64_t Of(std::int64_t position) const { return tied && position == stage->blocks - 1 ? 0 : position; }
  /// The first block of a unit, in forward order.
  bool Opens(std::int64_t position) const { return Of(position) == position && HasParameters(position); }
  /// The last one.
  bool Closes(std::int64_t position) const { return !(tied && position == 0) && HasParameters(position); }

  std::size_t MeshOf(const Parameter& parameter) const { return meshes.size() > 1 && parameter.experts > 0 ? 1 : 0; }
  ParameterGroup GroupOf(const Role& role, const ParameterAt& at) const {
    return {Of(at.position), MeshOf(ParameterOf(role, at))};
  }
  /// A unit's groups that have parameters, in order.
  std::vector<ParameterGroup> GroupsOf(std::int64_t unit) const;
  /// The same as a backward pass comes to them.
  std::vector<ParameterGroup> GroupsInReverse(std::int64_t unit) const;
  const UnitSize& SizeOf(const ParameterGroup& group) const {
    return meshes[group.mesh].sizes[stage->RunOf(Of(group.unit))];
  }
  std::int64_t ShardsOf(const ParameterGroup& group) const { return meshes[group.mesh].shards; }

  /// Elements of one parameter with its padding, and of this rank's shard of it.
  std::int64_t PaddedOf(const Parameter& parameter) const;
  std::int64_t ShardOf(const Parameter& parameter) const;
  /// Elements of this rank's shards of what is trained of the unit that begins at `position`, in definition order,
  /// which is the optimizer's.
  std::vector<std::int64_t> TrainedShardsOf(const Role& role, std::int64_t position) const;

  /// How a parameter on a mesh is divided.
  Holding Rows(const ShardMesh& mesh) const;
  /// Per run, what a unit's buffers on a mesh hold: this rank's rows of each parameter, or those of every rank.
  std::vector<Holding> Holds(std::size_t mesh, Parts parts, bool frozen, bool masters) const;
  /// This rank's rows of what is trained of the unit that begins at `position`, in definition order.
  std::vector<Holding> HoldsTrained(std::int64_t position) const;

  /// Calls `visit(ParameterAt)` for all parameters of a group.
  template <class Visit>
  void ForEachOf(const Role& role, const ParameterGroup& group, Visit visit) const {
    for (const std::int64_t position : {group.unit, stage->blocks - 1}) {
      const std::vector<Parameter>& parameters = role.stage.BlockAt(position).parameters;
      for (std::uint32_t i = 0; i < parameters.size(); ++i) {
        if (!parameters[i].tied && MeshOf(parameters[i]) == group.mesh) {
          visit(ParameterAt{position, i});
        }
      }
      if (!tied || group.unit != 0) {
        return;
      }
    }
  }

  /// The same for the trained ones.
  template <class Visit>
  void ForEachTrainedOf(const Role& role, const ParameterGroup& group, Visit visit) const {
    ForEachOf(role, group, [&](const ParameterAt& at) {
      if (ParameterOf(role, at).trainable) {
        visit(at);
      }
    });
  }

  /// Writes `body(group)` for every group that has something to train, as one loop per run.
  template <class Body>
  void EachTrainedGroup(Role& role, Body body) const {
    role.EachBlock([&](std::int64_t position) {
      for (const ParameterGroup& group : GroupsOf(position)) {
        if (SizeOf(group).trainable_padded > 0) {
          body(group);
        }
      }
    });
  }

 private:
  bool HasParameters(std::int64_t position) const;
  /// Names what a block has on a mesh.
  void Append(const Block& block, std::size_t mesh, bool frozen, std::vector<HeldRun>& held) const;
};

}  // namespace tidemark
