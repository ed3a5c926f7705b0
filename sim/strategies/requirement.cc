// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/requirement.h"

#include "models/network/loss_in_chunks.h"

namespace tidemark {

Status Check(std::span<const Requirement> requirements) {
  for (const Requirement& requirement : requirements) {
    if (!requirement.holds) {
      return BadKey(requirement.key, requirement.message, requirement.hint);
    }
  }
  return Done{};
}

Requirement GradientsLikeParameters(const Precision& precision) {
  return {precision.gradients == precision.params, "precision.gradients",
          "PyTorch makes gradients in the dtype of their parameters",
          "give precision.gradients the dtype of precision.params"};
}

Requirement ShardsAll(const Shard& shard, const char* message, const char* whole_parameters) {
  if (!shard.params) {
    const bool has_way = *whole_parameters != 0;
    return {false, "shard.params", message, has_way ? whole_parameters : "set shard.params to true"};
  }
  return {shard.gradients && shard.optimizer, shard.gradients ? "shard.optimizer" : "shard.gradients", message,
          shard.gradients ? "set shard.optimizer to true" : "set shard.gradients to true"};
}

Requirement ShardsNothing(const Shard& shard, const char* message) {
  if (shard.params) {
    return {false, "shard.params", message, "set shard.params to false, or use an fsdp2-* strategy"};
  }
  return {!shard.gradients && !shard.optimizer, shard.gradients ? "shard.gradients" : "shard.optimizer", message,
          shard.gradients ? "set shard.gradients to false, or use an fsdp2-* strategy"
                          : "set shard.optimizer to false, or use nanotron, which can shard it alone"};
}

Requirement NoForLoop(const OptimizerStep& step) {
  return {step.kernel != OptimizerStep::Kernel::for_loop, "optimizer_step.kernel",
          "torch.optim takes the for-loop on GPUs only with foreach: false, which this system does not pass on",
          "set optimizer_step.kernel to fused or foreach"};
}

Requirement DoesNotClip(const OptimizerStep& step, const char* reason) {
  return {step.clip_norm == 0, "optimizer_step.clip_norm", reason, "set optimizer_step.clip_norm to null"};
}

Requirement NoLossInChunks(Partition::Loss loss) {
  return {!TakesChunks(loss), "loss",
          "ChunkedLossWrapper and Liger-Kernel are PyTorch's; what JAX has in their place, as MaxText's "
          "num_vocab_tiling, is not modelled",
          "set loss to upcast-logits or low-precision"};
}

Requirement KeepsOptimizer(const OptimizerStep& step, const char* reason) {
  return {!step.offload, "optimizer_step.offload", reason,
          "leave optimizer_step.offload at false, or use deepspeed-zero1, deepspeed-zero2, deepspeed-zero3, fsdp2-* or "
          "hsdp"};
}

Requirement HasBucket(const Sync& sync, const char* hint) {
  return {sync.bucket_elements > 0, "sync.bucket_elements", "a reduction bucket of no elements holds nothing", hint};
}

}  // namespace tidemark
