// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/fsdp1/flat_sharded_units.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// The units of a role by position, their dtypes, and every buffer, stream and group that FSDP1 has.
struct FlatLayout {
  explicit FlatLayout(Role& role);

  bool IsLayer(std::int64_t position) const { return units.layers[role.stage.RunOf(position)]; }
  /// The position that stands for the unit of `position`.
  std::int64_t Unit(std::int64_t position) const { return IsLayer(position) ? position : root; }
  const FlatUnit& SizeOfUnit(std::int64_t unit) const { return units.sizes[role.stage.RunOf(unit)]; }
  bool has_root() const { return root >= 0 && SizeOfUnit(root).elements > 0; }
  /// The next layer below, -1 below the lowest.
  std::int64_t LayerBelow(std::int64_t position) const;
  std::int64_t shard_elements(std::int64_t unit) const { return SizeOfUnit(unit).padded / shards; }

  bool casts_parameters() const { return precision.params != master; }
  bool casts_gradients() const { return precision.reduce != precision.gradients; }
  bool casts_shards() const { return precision.reduce != master; }
  /// NO_SHARD: nothing to gather or to scatter.
  bool whole() const { return shards == 1; }
  /// Where autograd makes a unit's gradients one: on the stream on which the weights became views of the flat
  /// parameter, which is that of its gather (tests/gpu/pytorch_judge.py records it). NO_SHARD makes them views on
  /// compute.
  StreamId flat_stream() const { return whole() ? role.compute : gather_stream; }
  bool pads(std::int64_t unit) const { return SizeOfUnit(unit).padded != SizeOfUnit(unit).elements; }

  enum class Size : std::uint8_t { whole, padded, shard };
  /// By run, what the unit's buffer of that size holds.
  std::vector<Holding> Holds(Size size, bool masters) const;

  /// Calls `visit(ParameterAt)` for the parameters of a unit, in definition order.
  template <class Visit>
  void EachParameter(std::int64_t unit, Visit visit) const {
    if (IsLayer(unit)) {
      ForEachTrained(role, unit, visit);
      return;
    }
    for (std::int64_t position = 0; position < role.stage.blocks; ++position) {
      if (!IsLayer(position)) {
        ForEachTrained(role, position, visit);
      }
    }
  }

  bool IsTrainedUnit(std::int64_t position) const { return Unit(position) == position && SizeOfUnit(position).trained; }

  /// Calls `body(unit)` for each unit that is trained, root first, as one loop per run.
  template <class Body>
  void EachTrainedUnit(Body body) const {
    role.EachBlock([&](std::int64_t position) {
      if (IsTrainedUnit(position)) {
        body(position);
      }
    });
  }

  Role& role;
  const Precision& precision;
  const DType master;
  const std::int64_t replicas, shards;
  const FlatUnits units;
  std::int64_t root = -1;      ///< its unit's position, -1: none
  std::int64_t root_end = -1;  ///< where the backward pass makes the root's last gradient, -1: nowhere

  StreamId cast_stream, gather_stream, scatter_stream, replica_stream;
  GroupId group, replica_group;
  RunBuffers shard, cast, full;
  ParameterTable gradients;
  RunBuffers flat_gradient, fresh_gradient, widened, padded, scattered, cast_gradient, sharded_gradient;

 private:
  void DeclareParameters();
  void DeclareGradients();
  enum class Of : std::uint8_t { all, trained };
  RunBuffers Declare(const char* name, Category category, DType dtype, StreamId stream, Size size, Of of,
                     bool masters = false, bool stays = false) const {
    return role.PerBlock(name, category, dtype, stream, Sizes(size, of), stays, stays, Holds(size, masters));
  }
  std::vector<std::int64_t> Sizes(Size size, Of of) const;
};

}  // namespace tidemark
