// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/strategies/strategy.h"

namespace tidemark {

/// What the module DistributedDataParallel refuses by itself, whatever loop it is used in: sharding, other collectives
/// than all-reduce, and sums in another dtype than that of the parameters.
Status RefuseAsDdpModule(const Job& job);

/// torch.nn.parallel.DistributedDataParallel under a user's loop, everything in bf16, no master weights. With
/// static_graph, find_unused_parameters changes nothing: a static graph finds them by itself.
Strategy DdpPreset(std::string name, std::string summary, Sync::When when);

}  // namespace tidemark
