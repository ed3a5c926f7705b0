// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp1/flat_sharded_units.h"

#include <algorithm>

namespace tidemark {
namespace {

std::vector<bool> LayersOf(const std::vector<StageRun>& runs) {
  std::vector<bool> layers;
  for (const StageRun& run : runs) {
    layers.push_back(run.count > 1);
  }
  if (std::find(layers.begin(), layers.end(), true) == layers.end()) {
    layers[layers.size() / 2] = true;
  }
  return layers;
}

void Add(FlatUnit& unit, const Parameter& parameter) {
  if (parameter.tied) {
    return;
  }
  const bool differs = unit.elements > 0 && parameter.trainable != unit.trained;
  unit.mixed |= differs;
  unit.trained = parameter.trainable;
  unit.elements += parameter.elements;
}

}  // namespace

FlatUnits MeasureFlatUnits(const std::vector<StageRun>& runs, std::int64_t shards) {
  FlatUnits units{std::vector<FlatUnit>(runs.size()), LayersOf(runs), runs.size()};
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (!units.layers[run]) {
      units.root = std::min(units.root, run);
    }
    for (const Parameter& parameter : runs[run].block().parameters) {
      Add(units.sizes[units.layers[run] ? run : units.root], parameter);
    }
  }
  for (FlatUnit& unit : units.sizes) {
    unit.padded = RoundUp(unit.elements, shards);
  }
  return units;
}

}  // namespace tidemark
