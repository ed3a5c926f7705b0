// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp2/unit_size.h"

namespace tidemark {
namespace {

std::int64_t Padded(const Parameter& parameter, std::int64_t shards) {
  return RoundUp(parameter.ShardedRows(), shards) * (parameter.elements / parameter.ShardedRows());
}

void Add(UnitSize& size, const Parameter& parameter, std::int64_t shards) {
  if (parameter.tied) {
    return;
  }
  const std::int64_t padded = Padded(parameter, shards);
  size.elements += parameter.elements;
  size.padded += padded;
  size.trainable_padded += parameter.trainable ? padded : 0;
}

}  // namespace

std::vector<std::int64_t> Units::Sizes(std::int64_t UnitSize::*member, std::int64_t divisor) const {
  std::vector<std::int64_t> all;
  for (const UnitSize& size : sizes) {
    all.push_back(size.*member / divisor);
  }
  return all;
}

std::int64_t Units::PaddedOf(const Parameter& parameter) const { return Padded(parameter, shards); }

std::int64_t Units::ShardOf(const Parameter& parameter) const { return PaddedOf(parameter) / shards; }

std::vector<std::int64_t> Units::ShardsOf(const Role& role, std::int64_t position) const {
  std::vector<std::int64_t> elements;
  if (Opens(position)) {
    ForEachTrainedOf(role, position,
                     [&](const ParameterAt& at) { elements.push_back(ShardOf(ParameterOf(role, at))); });
  }
  return elements;
}

Holding Units::Rows() const {
  Holding rows;
  rows.cut = Cut::rows;
  rows.ranks = shards;
  return rows;
}

std::vector<Holding> Units::Holds(Parts parts, bool frozen, bool masters) const {
  std::vector<Holding> holds;
  for (const StageRun& run : stage->runs) {
    Holding& holding = holds.emplace_back(Rows());
    holding.parts = parts;
    holding.frozen = frozen;
    holding.masters = masters;
    holding.of = {{run.block().name}};
    if (tied && holds.size() == 1) {
      holding.of.push_back({stage->runs.back().block().name});
    }
  }
  return holds;
}

Units MeasureUnits(const Stage& stage, std::int64_t shards) {
  Units units;
  units.stage = &stage;
  units.shards = shards;
  units.sizes.resize(stage.runs.size());
  for (const Parameter& parameter : stage.runs.back().block().parameters) {
    units.tied |= parameter.tied;
  }
  for (std::size_t run = 0; run < stage.runs.size(); ++run) {
    const bool joins_embedding = units.tied && run + 1 == stage.runs.size();
    for (const Parameter& parameter : stage.runs[run].block().parameters) {
      Add(units.sizes[joins_embedding ? 0 : run], parameter, shards);
    }
  }
  return units;
}

}  // namespace tidemark
