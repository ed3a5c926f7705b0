// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// optax.MultiSteps around an optimizer, under jit with a data-parallel mesh (optax/transforms/_accumulation.py; issues
/// 320, 472 and 528, PR 596).
///
/// Every microbatch is a whole train step: one launch, and gradients all-reduced because the compiled step returns them
/// as part of a replicated state. `acc_grads`, a tree like the parameters, is part of that state for ever. It holds the
/// running mean, acc + (g - acc) / (n + 1); the weights of all microbatches come to 1/M, which the program carries from
/// the loss on (1/(M N), as the loss is the mean over all ranks), so that microbatches are alike.
///
/// Since PR 596 the inner optimizer runs in every microbatch and its result is masked, in all but the last one. Before
/// (`buffers.mid_updates`) a conditional, for whose predicate the host waits, returned a tree of zeros in its place,
/// which was then added to the parameters; and the tree of updates exists beside the gradients, which are the
/// conditional's operands.
std::unique_ptr<DataParallel> MakeMultiSteps(Role& role);

/// A jitted step that scans over its microbatches (jax.lax.scan), as Levanter and MaxText do: one launch a step.
///
/// The running sum is the scan's carry: P elements of zeros, and the all-reduce is moved behind the loop
/// (WhileLoopAllReduceCodeMotion), unless `sync.when` is every. With `buffers.stack_gradients` each microbatch's
/// gradients are kept and summed behind the loop (marin issue 6532): P elements per microbatch, and each is all-reduced
/// where it is made.
std::unique_ptr<DataParallel> MakeScan(Role& role);

}  // namespace tidemark
