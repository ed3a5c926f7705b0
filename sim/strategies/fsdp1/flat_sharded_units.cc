// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp1/flat_sharded_units.h"

#include <algorithm>

namespace tidemark {
namespace {

bool HasOwnParameters(const StageRun& run) {
  const std::vector<Parameter>& parameters = run.block().parameters;
  return std::any_of(parameters.begin(), parameters.end(), [](const Parameter& parameter) { return !parameter.tied; });
}

std::vector<bool> LayersOf(const std::vector<StageRun>& runs) {
  const bool has_layers =
      std::any_of(runs.begin(), runs.end(), [](const StageRun& run) { return !run.block().parts.empty(); });
  std::vector<bool> layers;
  for (const StageRun& run : runs) {
    layers.push_back(has_layers ? !run.block().parts.empty() : HasOwnParameters(run));
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
