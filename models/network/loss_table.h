// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/network/decoder_parts.h"

namespace tidemark {

/// The loss of the head block, from logits to their gradient. Sizes below are in units of tokens x local vocabulary,
/// in bytes, for bf16 logits; they were read off a running PyTorch. With fp32 or fp64 logits the casts disappear.
///
///   upcast_logits   logits 2, cast to fp32 4 (logits die), log-softmax 4 (the cast dies): saved 4, forward peak 8.
///                   Backward: NLL gradient 4 and log-softmax gradient 4 beside the saved 4: peak 12; then bf16 2.
///   upcast_returned the same; the caller holds the logits 2, here until the head's backward is done: forward peak 10,
///                   between the passes 6, backward peak 14.
///   upcast_fp32_returned  the same with the cast 4 held: forward peak 8, between the passes 8, backward peak 16.
///   low_precision   logits 2, log-softmax 2: saved 2, forward peak 4. Backward peak 6.
///   softmax_saving  logits 2 (held by the caller until the loss returns), cast 4, softmax 4: saved 4, forward peak 10.
///                   Backward turns the softmax into its gradient in place, then bf16 2. (nanotron's sharded
///                   cross-entropy.)
///   softmax_in_place  the same, and the cast becomes the softmax in place: forward peak 6, backward peak 6. With wide
///                   logits they themselves do. (Megatron-LM's core/tensor_parallel/cross_entropy.py: since "-=" and
///                   exp(out=) there is no second matrix.)
///   chunked         each chunk as upcast_returned: peak 14 of the chunk (loss_in_chunks.h).
///
/// With a vocabulary divided over tensor-parallel ranks each row's maximum, sum and target are reduced over them: three
/// all-reduces of 4 bytes a token, as in torch.distributed.tensor.parallel.loss_parallel and in Megatron-LM.
class LossTable {
 public:
  /// What the table is for: all tokens, or a chunk of them.
  struct Part {
    std::int64_t tokens = 0;
    std::string suffix;  ///< of the tensors' names
  };

  /// The forward half is added to `forward`, the backward half to `backward`; both must outlive the table.
  LossTable(DecoderParts& parts, Part part, TensorId logits, TensorId labels, std::vector<Action>& forward,
            std::vector<Action>& backward);

  void Forward();
  /// Returns the gradient of the logits.
  TensorId Backward();
  /// What a caller that was given the logits holds; invalid where nobody does.
  TensorId Held() const;

 private:
  using Loss = Partition::Loss;

  Loss kind() const { return parts_.partition().loss; }
  BlockBuilder& b() { return parts_.builder(); }

  bool SavesSoftmax() const { return kind() == Loss::softmax_saving || kind() == Loss::softmax_in_place; }
  void SoftmaxForward();
  TensorId SoftmaxBackward();
  void LogSoftmaxForward();
  TensorId LogSoftmaxBackward();
  void RowMaximum();
  TensorId AddWide(const std::string& name);
  TensorId AddRows(const std::string& name, std::int64_t elements);
  TensorId AddLoss() { return AddRows("loss", 1); }
  /// A statistic of each row, summed or maximised over the ranks that share the row's vocabulary.
  void Reduce(std::string name, TensorId rows, Reduction reduction = Reduction::sum);
  Calculate& Pass(bool backward, std::string name, std::vector<TensorId> reads, std::vector<TensorId> writes);

  DecoderParts& parts_;
  Part part_;
  std::vector<Action>&forward_, &backward_;
  TensorId logits_, labels_, wide_;
  TensorId saved_, row_max_, row_sum_, target_;
};

}  // namespace tidemark
