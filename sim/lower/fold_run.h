// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "sim/lower/block_writer.h"
#include "sim/lower/data_parallel.h"
#include "sim/lower/role.h"

namespace tidemark {

/// `count` equal blocks from `position` on, in direction `step` (1 or -1).
struct BlockWalk {
  std::int64_t position = 0, count = 1, step = 1;
};

/// Calls `write(position)` for the blocks of a walk, but folds the periodic part into a loop.
///
/// What a strategy has under way between two blocks (a bucket half full, a gather ahead) is its Key. As soon as a key
/// comes back, the blocks since then are one period: they become the body of a loop over as many whole periods as fit,
/// and what the strategy remembers is moved to where the loop ends. The last block of a walk is always written by
/// itself, because it may look at the neighbouring run. Without a period the blocks stay written out. Cost: blocks
/// before the first period, plus one period, plus the rest behind the loop; not the number of blocks.
void FoldRun(Role& role, DataParallel& data_parallel, const BlockWriter& blocks, const BlockWalk& walk,
             const std::function<void(std::int64_t)>& write);

}  // namespace tidemark
