// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "sim/lower/role.h"

namespace tidemark {

/// With sequence parallelism a tensor-parallel rank computes some gradients from its own rows of the residual stream
/// only: of norms, of biases behind a reduction, of learned positions; and always those of norms of queries and keys
/// from its own heads. All ranks of the group hold these parameters, and the sum of their gradients is the whole one.
/// When a system takes it:
enum class ReplicatedGradients : std::uint8_t {
  /// Each as soon as autograd has made it, in its dtype, in every microbatch: as the backward pass of a DTensor made
  /// from a replicated local tensor does (torch/distributed/tensor/_api.py, _FromTorchTensor), which is how
  /// DistributedDataParallel and FSDP1 see such parameters.
  in_backward,
  /// The strategy does it itself (SumOverTensorParallelRanks) where it reduces gradients over the data.
  by_strategy,
  /// The final gradients of a window, behind their reduction over the data-parallel group, where they lie, in one
  /// collective for all chunks of the rank.
  before_step,
  /// As before_step, but copied into one flat tensor, which is made for that, and back.
  before_step_flat,
};

/// What a data-parallel system does around the blocks of a step: where parameters live, what becomes of gradients, when
/// the group communicates, and the optimizer. The lowering walks microbatches and blocks and calls the hooks; an
/// implementation writes nodes and remembers what it has under way. One object per chunk of a role and lowering.
class DataParallel {
 public:
  virtual ~DataParallel() = default;

  /// Before the step's first forward pass; of a rank with more than two chunks, for each further one when the chunk
  /// before it begins.
  virtual void GatherAhead() {}
  virtual void BeginMicrobatch(const Microbatch&) {}
  virtual void BeforeForward(const Microbatch&, std::int64_t /*position*/) {}
  virtual void AfterForward(const Microbatch&, std::int64_t /*position*/) {}
  virtual void EndForward(const Microbatch&) {}
  virtual void BeforeBackward(const Microbatch&, std::int64_t /*position*/) {}
  virtual void AfterBackward(const Microbatch&, std::int64_t /*position*/) {}
  /// Around each action of a block, before its outputs are born and after what dies with it is gone. `action` counts
  /// the block's forward actions, then its backward actions.
  virtual void BeforeAction(const Microbatch&, std::int64_t /*position*/, std::size_t /*action*/) {}
  virtual void AfterAction(const Microbatch&, std::int64_t /*position*/, std::size_t /*action*/) {}
  /// All gradients of the microbatch exist; a synchronising one waits for its communication here.
  virtual void EndBackward(const Microbatch&) = 0;
  /// Of a rank with several chunks, before the first of them steps: their gradients are clipped to one norm. Systems
  /// that ship no schedule with chunks do not clip there.
  virtual void MeasureNorm() { TIDEMARK_CHECK(false); }
  /// After the last microbatch of a window: update, gather, zero.
  virtual void OptimizerStep() = 0;
  /// Throws away what an incomplete window behind the last step has left: `last` is its last microbatch.
  virtual void DiscardGradients(const Microbatch& last) = 0;

  /// What is under way between two microbatches: equal keys promise that microbatches that stand alike in their windows
  /// write the same nodes.
  virtual std::vector<std::int64_t> KeyBetweenMicrobatches() const { return {}; }

  /// The weight as a kernel reads it.
  virtual BufferRef Weight(const ParameterAt& at) = 0;
  /// The buffer that the backward kernel writes this parameter's gradient to: a fresh one, unless the kernel adds.
  virtual BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) = 0;
  /// Whether that kernel adds to what the buffer holds already instead of overwriting it.
  virtual bool AddsInKernel(const Microbatch&, const ParameterAt&) const { return false; }
  /// The gradient is complete: accumulate it, pass it on, or keep it.
  virtual void EndGradient(const Microbatch& microbatch, const ParameterAt& at) = 0;

  /// What stands between two blocks, relative to `position`: equal keys promise that the same hooks write the same
  /// nodes from here on, shifted by the distance of the two positions.
  virtual std::vector<std::int64_t> Key(std::int64_t position) const = 0;
  /// For how many blocks, `position` the first of them, the promise of `Key` holds: of a system that knows where it
  /// will do something else.
  virtual std::int64_t BlocksAlike(std::int64_t /*position*/) const { return INT64_MAX; }
  /// Moves everything remembered by `blocks` positions: that many were folded into a loop.
  virtual void Shift(std::int64_t blocks) = 0;

  /// The gradient as the optimizer will read it, for copies that two ranks add up: of a tied embedding, or of a
  /// stage that both hold.
  virtual BufferRef FinalGradient(const ParameterAt& at) = 0;

  virtual ReplicatedGradients SumsReplicated() const { return ReplicatedGradients::in_backward; }
};

}  // namespace tidemark
