// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/lower/stage.h"

namespace tidemark {

/// One flat parameter: all parameters of a unit one after the other.
struct FlatUnit {
  std::int64_t elements = 0;
  std::int64_t padded = 0;  ///< to a multiple of the shards, once for the whole unit
  bool trained = false;     ///< all of them are
  bool mixed = false;       ///< some are, some are not
};

/// How FullyShardedDataParallel with a policy that wraps transformer blocks cuts a network: each layer is a unit, and
/// the root unit holds the rest (embedding, final norm, head). A network without such blocks has each of its blocks
/// wrapped that has parameters.
struct FlatUnits {
  std::vector<FlatUnit> sizes;  ///< per run of blocks; the root's size stands at its first run, its other runs have 0
  std::vector<bool> layers;     ///< per run
  std::size_t root = 0;         ///< the root's first run; as many as there are runs where nothing is left for a root
};

/// A tied parameter is counted where it is defined.
FlatUnits MeasureFlatUnits(const std::vector<StageRun>& runs, std::int64_t shards);

}  // namespace tidemark
