// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/lower/stage.h"
#include "sim/schedules/slot.h"

namespace tidemark {

/// The order in which one rank works on the microbatches of a step.
///
/// In a pipeline: that of its schedule, flush after flush. Without one: each microbatch's forward and backward pass in
/// turn; with a single backward pass of the summed loss all forward passes, then autograd walks the graphs from the
/// youngest to the oldest. GradCache: representations of both sides, chunk by chunk; the loss; then a forward and a
/// backward pass for each chunk of the first side, and of the second. Its microbatches are the chunks of the first
/// side, then of the second.
std::vector<SlotRun> SlotsOf(const Job& job, const std::vector<Stage>& chunks);

/// Microbatches of a step that one chunk sees: a pipeline that runs both ways sends one half of each flush either way.
std::int64_t MicrobatchesOfChunk(const Job& job);
/// The place of a microbatch among those that the chunk sees.
std::int64_t OrderOf(const Job& job, const Stage& chunk, std::int64_t microbatch);

}  // namespace tidemark
