// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "models/job/job.h"
#include "models/network/block.h"

namespace tidemark {

/// Forward actions [begin, end) that are done again in the backward pass.
struct DoneAgain {
  std::size_t begin = 0, end = 0;
  /// What they hand on to other forward actions is not kept for the backward pass either.
  bool drops_output = false;
  /// Those of them that are not done again, in ascending order: what they write is kept for those that are, and for the
  /// backward pass. No other action of the stretch writes it.
  std::vector<std::size_t> kept = {};
  /// What neither the backward pass nor another repeated action reads is not done again.
  bool needed_only = false;
};

/// A block in whose backward pass a stretch of its forward pass is done again, just before the first action that
/// belongs to that stretch's own backward pass; a stretch that is the whole forward pass, before everything. Repeated
/// actions read what the first ones read and write tensors of their own ("q_recomputed"), which all backward actions
/// behind them read. What thereby nobody reads in the backward pass any more dies in the forward pass by itself
/// (sim/lower/lifetime.h). Parameters, forward actions and the ids of tensors stay as they are.
///
/// The whole stretch is repeated, also where nobody reads its last results: so do CheckpointFunction and
/// CheckpointWithoutOutput of Megatron-LM (megatron/core/tensor_parallel/random.py), DeepSpeed's checkpoint, PyTorch's
/// reentrant one, which nanotron uses, and torchtitan's, which turns early_stop off. (PyTorch's non-reentrant one stops
/// at the last tensor that is needed unless told otherwise: not modelled.) Compilers drop what nobody needs
/// (`needed_only`); that a dropout's mask could be drawn again without the product that it is of, is not modelled.
///
/// Random numbers are drawn again from the same state, so a dropout's mask is not kept either. The tensor-parallel
/// gather that a backward pass repeats for its weight gradients (Partition::Gathered) is part of the linear layer's own
/// backward pass and remains.
///
/// Two small differences: hooks of real systems fire before the gather of the output's gradient where there is one, not
/// behind it; and a reentrant checkpoint holds the output done again until it returns, which here dies at once.
Block DoAgain(const Block& block, const DoneAgain& again);

/// A transformer layer of which all is done again (full, every_n), or its parts as the policy names them (selective).
/// Other blocks, which have no parts, and layers of a job that recomputes nothing come back as they are.
///
///   attention, feed_forward   what lies within is dropped, the output stays (its next reader saves it)
///   norm, activation,         the output, too, is dropped, which only what stands behind it has saved
///   latent_heads
///
/// Per operation (per_op), all is done again but what torchtitan's list keeps (models/llama3/infra/parallelize.py,
/// _op_sac_save_list; distributed/activation_checkpoint.py, _apply_op_sac, at 9810191b^): attention in one kernel,
/// reduce-scatters, all-to-alls, and of the matrix products the first, third, fifth, ... A product with a bias is
/// another operation there (addmm) and not on the list, and so is one of several experts (_grouped_mm). Nor, under
/// torchtitan's spmd_types (its default in August 2026), are reduce-scatters and all-to-alls, which torch.distributed
/// then does in place (`collectives`). Nor is anything kept that is written to in place afterwards, by a sum over
/// ranks or a bias. What is kept lives until its reader was done again; so does the output of the last product, which
/// eager code holds although no gradient needs it. Left out: that a router's choice is kept, 12 bytes for each expert
/// of a token.
Block Recomputed(const Block& block, const Recompute& recompute);

}  // namespace tidemark
