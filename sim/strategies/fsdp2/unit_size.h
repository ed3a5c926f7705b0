// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// Elements of one FSDP unit. Dimension 0 of each parameter is padded to a multiple of the group size before it is cut
/// (fully_shard's FSDPParam), so a gathered unit is larger than its parameters.
struct UnitSize {
  std::int64_t elements = 0, padded = 0;
  std::int64_t trainable_padded = 0;
};

/// The units of a stage: one per block, except that a tied head joins the embedding's and leaves its own empty. A unit
/// is known by the position of its first block. A block without parameters is no unit.
struct Units {
  const Stage* stage = nullptr;
  std::int64_t shards = 1;
  std::vector<UnitSize> sizes;  ///< per run of the stage
  bool tied = false;

  /// The unit that the block at `position` belongs to.
  std::int64_t Of(std::int64_t position) const { return tied && position == stage->blocks - 1 ? 0 : position; }
  const UnitSize& SizeAt(std::int64_t position) const { return sizes[stage->RunOf(Of(position))]; }
  /// The first block of a unit, in forward order.
  bool Opens(std::int64_t position) const { return Of(position) == position && SizeAt(position).elements > 0; }
  /// The last one.
  bool Closes(std::int64_t position) const { return !(tied && position == 0) && SizeAt(position).elements > 0; }

  /// Elements of one parameter with its padding, and of this rank's shard of it.
  std::int64_t PaddedOf(const Parameter& parameter) const;
  std::int64_t ShardOf(const Parameter& parameter) const;
  /// Elements of this rank's shards of what is trained of the unit that begins at `position`, by parameter.
  std::vector<std::int64_t> ShardsOf(const Role& role, std::int64_t position) const;

  /// Per run, elements of `member` over `divisor`.
  std::vector<std::int64_t> Sizes(std::int64_t UnitSize::*member, std::int64_t divisor) const;

  /// How a parameter is divided.
  Holding Rows() const;
  /// Per run, what a unit's buffers hold: this rank's rows of each parameter, or those of every rank.
  std::vector<Holding> Holds(Parts parts, bool frozen, bool masters) const;

  /// Calls `visit(ParameterAt)` for all parameters of a unit.
  template <class Visit>
  void ForEachOf(const Role& role, std::int64_t unit, Visit visit) const {
    for (const std::int64_t position : {unit, stage->blocks - 1}) {
      const std::vector<Parameter>& parameters = role.stage.BlockAt(position).parameters;
      for (std::uint32_t i = 0; i < parameters.size(); ++i) {
        if (!parameters[i].tied) {
          visit(ParameterAt{position, i});
        }
      }
      if (!tied || unit != 0) {
        return;
      }
    }
  }

  /// The same for the trained ones.
  template <class Visit>
  void ForEachTrainedOf(const Role& role, std::int64_t unit, Visit visit) const {
    ForEachTrained(role, unit, visit);
    if (tied && unit == 0) {
      ForEachTrained(role, stage->blocks - 1, visit);
    }
  }

  /// Writes `body(unit, elements of one shard)` for every unit that has something to train, as one loop per run.
  template <class Body>
  void EachTrained(Role& role, Body body) const {
    role.EachBlock([&](std::int64_t position) {
      const std::int64_t elements = SizeAt(position).trainable_padded / shards;
      if (elements > 0 && Opens(position)) {
        body(position, elements);
      }
    });
  }
};

Units MeasureUnits(const Stage& stage, std::int64_t shards);

}  // namespace tidemark
