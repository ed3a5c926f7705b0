// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// Alpa's gradient accumulation, as it shipped and as its design discussion weighed it (alpa issue 72, PRs 78, 90 and
/// 214; alpa/shard_parallel/compile_executable.py, alpa/mesh_executable.py).
///
/// A step function is split where `alpa.grad` stands: accumulate_grad(parameters, microbatch, old gradients) -> new
/// gradients, and apply_grad(state, gradients) -> state. The host runs allocate_zero_buffers once, accumulate_grad per
/// microbatch, apply_grad once: M + 2 launches. Gradients keep their dtype, the accumulated ones are donated to the
/// next call, and apply_grad divides them by M inside its fused update. The loss is the mean over all ranks, so a local
/// gradient holds 1/N already and all-reduces sum.
///
/// `gradient_flow.loop` says where the loop runs: `runtime` (as above), `program` (a loop inside one executable: one
/// launch), `unrolled` (written out inside one), `outside` (the user's loop over a function that returns gradients,
/// each of them all-reduced; the sum is a further executable).
///
/// `sync.executable` says which executable synchronises. `skip-channels` shipped: one executable, the all-reduces of
/// which are skipped by channel id in all microbatches but the last. `two`: one with and one without them. `branch`:
/// inside a conditional, for which the host waits for the predicate, and behind which nothing starts before it; its
/// buffers exist on either branch. `separate`: an executable of its own behind the last microbatch.
///
/// XLA's combiner merges all-reduces up to `sync.bucket_bytes` (all_reduce_threshold, 2^60 bytes), and with
/// `buffers.contiguous_gradients` (combiner::use_continuous_buffer, always on) copies their operands into one buffer
/// and the result out of it. The executable that shipped does so in every microbatch, also where it skips the
/// all-reduce.
///
/// Without `sync.rewrite` (the pass rewrite_for_grad_acc) the all-reduce stands on the microbatch's own gradient,
/// before the sum: gradients wait for it, and skipping it leaves the earlier microbatches unreduced.
///
/// Without `buffers.donate` executables return new buffers beside their inputs: gradients in every microbatch,
/// parameters and optimizer states in apply_grad.
///
/// With `sync.collective: reduce_scatter` (Zero2Parallel with its accumulation-friendly reduce-scatter) each rank
/// accumulates whole gradients, scatters them once, updates its part and gathers parameters.
///
/// Not counted: code and constants of the executables (twice with `two`).
std::unique_ptr<DataParallel> MakeAlpa(Role& role);

}  // namespace tidemark
