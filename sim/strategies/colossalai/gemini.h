// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// Colossal-AI's Gemini with enable_gradient_accumulation: ZeRO-3 by chunks. A chunk holds several parameters, possibly
/// of several layers, and a layer's parameters may lie in several chunks (chunk_search.h). Order of events, buffers and
/// factors are those of colossalai/zero/gemini at 4f9953be: gemini_hook.py (an operator gathers the chunks that it
/// needs), placement_policy.py ("static", shard_param_frac 1: every chunk that it does not need is given up before),
/// gemini_ddp.py (grad_handle), chunk/manager.py and chunk/chunk.py.
///
/// A chunk stays gathered until an operator needs parameters of another one. So the chunk of the forward pass's last
/// operator is still there when the backward pass begins with the same operator, and is not gathered again.
///
/// Gradients: the first gradient of a chunk brings a whole gradient chunk into being, the last one reduce-scatters it
/// (sum), after which the shard is divided by N. From the second microbatch of a window on, the whole chunk begins as
/// zeros plus N times this rank's shard in its own part, so that the division cancels. Shards of gradients outlive the
/// step: they go when the next window's first gradient of their chunk appears. A chunk that is kept gathered is reduced
/// by all-reduce in place. `sync.overlap` is enable_async_reduce: reduction and what follows it on a stream of its own.
///
/// Chunks do not repeat with the layers, so blocks are written one by one and the program grows with their number
/// (about 140 nodes a layer and kind of microbatch; a few milliseconds for a hundred layers). Only a kept-gathered
/// chunk leaves the blocks alike.
std::unique_ptr<DataParallel> MakeGemini(Role& role);

}  // namespace tidemark
