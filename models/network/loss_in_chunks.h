// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/network/decoder_parts.h"

namespace tidemark {

/// Losses that never hold the logits of all tokens: the head's product, the loss and the gradients of both are done for
/// some tokens at a time.
///
///   chunked  torchtitan's ChunkedLossWrapper (torchtitan/components/loss.py, commit 00a388d9): for each chunk logits,
///            F.cross_entropy on their fp32 cast, and at once its backward pass through the head, whose caller holds
///            the chunk's logits meanwhile: 14 bytes an element of the chunk's logits. The gradient of the hidden
///            states is gathered in fp32 for all tokens and cast at the end; the reduction of a tensor-parallel head's
///            input gradient comes once, behind the cast. Eight chunks unless Partition::loss_chunk_tokens says how
///            large they are.
///            All of it stands at the begin of the backward pass. (In torchtitan it is the end of the forward pass,
///            which is the same instant, except where a schedule runs other microbatches in between.)
///            The weight's gradient is summed as autograd does: the first chunk's becomes it, each later one is born
///            beside it and added, in the dtype of the backward pass; it is handed on once. In FSDP2 with a wider
///            reduction dtype the sum has that one (Partition::chunk_sum), and each chunk's part is cast before it is
///            added (Tensor.grad_dtype; torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py of PyTorch 2.15,
///            _set_unsharded_grad_dtypes). torchtune's CEWithChunkedOutputLoss is another thing: it chunks only the
///            cast and holds all logits.
///
///   fused    Liger-Kernel's fused linear cross-entropy (liger_kernel/ops/fused_linear_cross_entropy.py, commit
///            00eba634), reduction "mean", no accum_dtype: in the forward pass each chunk's logits, in the dtype of the
///            hidden states, are turned into their gradient in place; that is multiplied into the gradient of the
///            hidden states, and added into that of the weight, in the weight's dtype, by the product itself. Both are
///            kept; the backward pass scales them by the loss's own gradient, in place, and hands them on. Its own
///            chunk size is next_power_of_2(ceil(n / ceil(V / h))) for n tokens. (The library skips the scaling where
///            the loss's gradient is exactly 1; here it is always done.)
///
/// Chunks are written as three stretches: the first, all in the middle as one loop, and the last, which may be shorter.
/// The loop's tensors are born and die in each turn, and every turn costs the same: neither peak nor time is rounded.
struct ChunkStretch {
  const char* suffix = "";  ///< of the names of its tensors
  std::int64_t begin = 0;   ///< the first token
  std::int64_t tokens = 0;  ///< of each of `turns` chunks, one behind the other
  std::int64_t turns = 1;
  bool is_first = false, is_last = false;
};

struct ChunkPlan {
  std::int64_t first = 0;   ///< tokens
  std::int64_t middle = 0;  ///< tokens of each of `turns` chunks
  std::int64_t turns = 0;
  std::int64_t last = 0;  ///< 0: there is one chunk

  std::int64_t chunks() const { return turns + (last > 0 ? 2 : 1); }
  std::vector<ChunkStretch> Stretches() const;
};

bool TakesChunks(Partition::Loss loss);

/// How the tokens of a microbatch are divided. Where sequences are shorter than the longest (longest_sequence), into as
/// many chunks as the longest, in proportion; they have at least that many tokens.
ChunkPlan PlanChunks(const LocalShape& shape, const Partition& partition);

/// A head's loss in chunks. `linear` is the head, `input` what it reads.
class LossInChunks {
 public:
  LossInChunks(DecoderParts& parts, LinearPart linear, TensorId input, TensorId labels);

  void Forward();
  /// Returns the gradient of `input`: on each tensor-parallel rank its part of a sum.
  TensorId Backward();

 private:
  bool fused() const { return parts_.partition().loss == Partition::Loss::fused; }
  bool SumsWide() const { return parts_.partition().chunk_sum.has_value(); }
  bool trains() const { return parts_.builder().trainable(linear_.weight); }
  std::int64_t hidden_elements(std::int64_t tokens) const { return tokens * parts_.shape().hidden; }

  /// Calls `write(stretch)` for each, and makes a loop of the one in the middle.
  template <class Write>
  void EachStretch(std::vector<Action>& pass, std::vector<ActionLoop>& loops, Write write);
  TensorId Logits(std::vector<Action>& pass, const ChunkStretch& stretch);
  void WriteChunk(const ChunkStretch& stretch);
  std::optional<TensorId> AddWeightGradient(const ChunkStretch& stretch, TensorId d_logits);
  void SumWide(const ChunkStretch& stretch, TensorId part);
  void AddToWeightGradient(const ChunkStretch& stretch, TensorId part, const char* name);
  void WriteFusedChunk(const ChunkStretch& stretch);
  TensorId FusedBackward();

  DecoderParts& parts_;
  LinearPart linear_;
  TensorId input_, labels_;
  TensorId sum_;     ///< gradient of the input, as it is gathered
  TensorId weight_;  ///< fused: gradient of the weight
  TensorId losses_;  ///< fused: of each token
};

}  // namespace tidemark
