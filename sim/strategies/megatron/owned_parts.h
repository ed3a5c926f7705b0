// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/strategies/megatron/gradient_buffer.h"
#include "sim/strategies/optimizer.h"
#include "sim/strategies/part_table.h"

namespace tidemark {

/// What a rank of Megatron's distributed optimizer keeps: masters and moments of its range of every bucket
/// (megatron/core/optimizer/distrib_optimizer.py, _build_model_gbuf_range: the ranks divide a bucket evenly, padding
/// and all; there is no state for padding). The range does not respect parameters: a block may have all of it or none.
/// Rank 0, whose ranges begin the buckets, keeps the most but for gaps between parameters, which are aligned to 64
/// elements; a later one may have nothing of a bucket.
///
/// Masters in fp32 are updated with fp32 gradients: where the gradient buffer is in 16 bits, each rank's range of it is
/// copied before the update, and the copies live until the next window begins (_copy_model_grads_to_main_grads,
/// zero_grad). A precision-aware optimizer, which is one with other moments than fp32, reads the buffer itself.
///
/// A bucket's state is one buffer here, where the system has one per parameter that the range touches; it belongs to
/// the block that completes the bucket.
class OwnedParts {
 public:
  /// `buffer` must outlive it.
  OwnedParts(Role& role, const GradientBuffer& buffer);

  /// What a loop over blocks must depend on, besides GradientBuffer::Describe, to call the others for their buckets.
  std::vector<std::int64_t> Key(std::int64_t position) const;
  bool CopiesGradients() const { return !copies_.empty(); }
  /// Whether copies of the window before are alive when a step begins.
  bool CopiesAtStart() const { return copies_at_start_; }
  void FreeCopy(const GradientBucket& bucket);
  void CopyGradients(const GradientBucket& bucket, const std::vector<BufferRef>& gradients);
  /// How this rank's range of a bucket is updated.
  TensorUpdate UpdateOf(const GradientBucket& bucket, const std::vector<BufferRef>& gradients,
                        const std::vector<BufferRef>& weights) const;
  void MeasureNorm(const Updates& updates) { optimizer_.MeasureNorm(role_, updates); }
  void Step(const Updates& updates) { optimizer_.Step(role_, updates); }
  /// Nothing without masters.
  void CopyToWeights(const GradientBucket& bucket, std::vector<BufferRef> weights);

 private:
  Role& role_;
  const Precision& precision_;
  std::vector<PartTable> masters_;  ///< by GradientBucket::slot
  std::vector<PartTable> copies_;   ///< by GradientBucket::slot: gradients in fp32
  bool copies_at_start_ = false;
  std::size_t slots_ = 0;     ///< the most buckets that one block completes
  OptimizerState optimizer_;  ///< by GradientBucket::slot
};

}  // namespace tidemark
