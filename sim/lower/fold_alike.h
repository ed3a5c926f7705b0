// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// What a body does at a block, relative to the block's position: equal keys of one run promise equal nodes.
using BlockKey = std::function<std::vector<std::int64_t>(std::int64_t position)>;

enum class BlockOrder : std::uint8_t { first_to_last, last_to_first };

/// Writes `body(position)` for every block of the stage, where the body depends on the block's neighbours but its key
/// says all about that. Stretches of a run whose keys repeat become loops. Unlike FoldRun this looks at the keys of all
/// blocks beforehand, so a key need not say anything about what follows.
void EachBlockAlike(Role& role, const BlockKey& key, const std::function<void(std::int64_t)>& body,
                    BlockOrder order = BlockOrder::first_to_last);

}  // namespace tidemark
