// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/network/block.h"
#include "models/network/network.h"

namespace tidemark {

// The network families behind BuildBlocks. `trainable` is Network::trainable.

Result<std::vector<BlockRun>> BuildDecoder(const Decoder& decoder, std::span<const std::string> trainable,
                                           const Partition& partition);
Result<std::vector<BlockRun>> BuildDualEncoder(const DualEncoder& network, std::span<const std::string> trainable,
                                               const Partition& partition);
Result<std::vector<BlockRun>> BuildTable(const Table& table, std::span<const std::string> trainable,
                                         const Partition& partition);

/// Largest size, product or count of operations that a block may reach. Leaves room for sums over a step in 64 bits.
inline constexpr double kLargestProduct = 1152921504606846976.0;  // 2^60

}  // namespace tidemark
