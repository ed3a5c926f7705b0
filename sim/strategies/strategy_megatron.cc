// SPDX-License-Identifier: Apache-2.0
#include <variant>

#include "sim/strategies/megatron/contiguous.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const Precision& precision = axes.precision;
  const bool masters = SizeOf(precision.params) < SizeOf(DType::fp32);
  const bool right_master = masters ? precision.master == DType::fp32 : !precision.master;
  const bool global_buffer = axes.buffers.tp_gather == Buffers::TpGather::pooled;
  const Requirement requirements[] = {
      KeepsOptimizer(axes.optimizer_step,
                     axes.shard.optimizer
                         ? "HybridDeviceOptimizer (--optimizer-cpu-offload) is not modelled yet"
                         : "--use-precision-aware-optimizer only supported with distributed optimizer, and "
                           "--optimizer-cpu-offload must be used in conjunction with it"),
      {axes.sync.when == Sync::When::last, "sync.when",
       "Megatron's schedules run every microbatch but the last inside no_sync; its buffer may be reduced once per "
       "window only",
       "set sync.when to last"},
      {global_buffer, "buffers.tp_gather",
       "Megatron gathers sequence-parallel inputs into its global memory buffer, and again in the backward pass: it "
       "has no other way",
       "leave buffers.tp_gather at pooled, or use nanotron, which has them all"},
      {precision.gradients == precision.params, "precision.gradients",
       "autograd makes gradients in the parameters' dtype", "give precision.gradients the dtype of precision.params"},
      {precision.accumulate == DType::fp32 || precision.accumulate == precision.params, "precision.accumulate",
       "Megatron's gradient buffer is in fp32, or with --grad-reduce-in-bf16 in the parameters' dtype",
       "set precision.accumulate to fp32, or to the dtype of precision.params"},
      {precision.accumulate == DType::fp32 || axes.shard.optimizer, "precision.accumulate",
       "a gradient buffer in 16 bits (--grad-reduce-in-bf16, or --fp16 without --accumulate-allreduce-grads-in-fp32) "
       "is "
       "modelled with the distributed optimizer only",
       "set precision.accumulate to fp32, or use megatron-dist-opt"},
      {!axes.sync.fp32_accumulation || axes.shard.optimizer, "sync.fp32_accumulation",
       "it is a way to reduce-scatter, which only the distributed optimizer does", "use megatron-dist-opt"},
      {!axes.sync.fp32_accumulation || precision.accumulate != DType::fp32, "sync.fp32_accumulation",
       "Megatron switches it off where the gradient buffer is in fp32, which is reduced in fp32 already",
       "set precision.accumulate and precision.reduce to the dtype of precision.params (--grad-reduce-in-bf16), or "
       "sync.fp32_accumulation to false"},
      {!axes.sync.fp32_accumulation || !axes.sync.average_in_collective, "sync.fp32_accumulation",
       "Megatron's reduce_scatter_with_fp32_accumulation asserts that it sums: op == ReduceOp.SUM",
       "set sync.average_in_collective to false"},
      {!axes.sync.fp32_accumulation || ExpertsOf(job.network) == nullptr, "sync.fp32_accumulation",
       "not modelled with experts, which lie in buckets by themselves", "set sync.fp32_accumulation to false"},
      {axes.loss_scale == LossScale::microbatches || axes.loss_scale == LossScale::summed_tokens, "loss_scale",
       "Megatron divides losses by their microbatch's tokens, or with --calculate-per-token-loss the reduced gradients "
       "by all tokens",
       "set loss_scale to microbatches, or to summed-tokens"},
      {axes.loss_scale != LossScale::summed_tokens || !axes.sync.average_in_collective, "sync.average_in_collective",
       "Cannot average in collective when calculating per-token loss!",
       "set sync.average_in_collective to false, or loss_scale to microbatches"},
      {!axes.buffers.attention_mask || std::holds_alternative<Decoder>(job.network.shape), "buffers.attention_mask",
       "the mask is that of a decoder's sequences", "set buffers.attention_mask to false"},
      {!axes.sync.overlap_gather || axes.shard.optimizer, "sync.overlap_gather",
       "--overlap-param-gather only supported with distributed optimizer: no other has weights to gather",
       "set sync.overlap_gather to false, or use megatron-dist-opt"},
      {!axes.sync.overlap_gather || axes.sync.overlap, "sync.overlap_gather",
       "Must use --overlap-param-gather with --overlap-grad-reduce", "set sync.overlap to true"},
      {precision.reduce == precision.accumulate, "precision.reduce",
       "the gradient buffer itself is what Megatron reduces, in its dtype",
       "give precision.reduce the dtype of precision.accumulate"},
      {right_master, "precision.master", "Megatron keeps fp32 copies of 16-bit parameters and none of fp32 ones",
       masters ? "set precision.master to fp32" : "set precision.master to none"},
      {precision.optimizer == DType::fp32 || axes.shard.optimizer, "precision.optimizer",
       "only the distributed optimizer can keep moments in another dtype than fp32 (--use-precision-aware-optimizer)",
       "set precision.optimizer to fp32, or use megatron-dist-opt"},
      NoForLoop(axes.optimizer_step),
      {job.optimizer == OptimizerKind::adamw || !axes.shard.optimizer, "optimizer",
       "Only Adam currently supported, due to checkpointing requirements.", "set optimizer to adamw, or use megatron"},
  };
  return Check(requirements);
}

Strategy Megatron(const char* name, const char* summary, bool distributed_optimizer) {
  Strategy strategy;
  strategy.defaults.name = name;
  strategy.defaults.summary = summary;
  strategy.defaults.has_ring = strategy.defaults.divides_experts = true;
  strategy.defaults.experts = Experts::Layer::megatron;
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = Sync::When::last;
  axes.sync.overlap = true;  // --overlap-grad-reduce, which buckets are for
  axes.sync.collective = distributed_optimizer ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
  axes.shard.optimizer = distributed_optimizer;
  axes.precision.master = DType::fp32;
  axes.precision.accumulate = DType::fp32;
  axes.precision.reduce = DType::fp32;
  axes.precision.optimizer = DType::fp32;
  axes.packing = {true, true};
  axes.buffers.latent_value_views = false;             // MultiLatentAttention.forward makes them contiguous
  axes.buffers.tp_gather = Buffers::TpGather::pooled;  // the global memory buffer "mpu"
  // LinearWithGradAccumulationAndAsyncCommunication
  axes.linear_order = Partition::LinearOrder::input_gradient_first;
  axes.buffers.fused_accumulation = true;  // unless --no-gradient-accumulation-fusion
  axes.loss = Partition::Loss::softmax_in_place;
  strategy.defaults.keys = {"optimizer_step.kernel",      "optimizer_step.clip_norm",
                            "sync.bucket_elements",       "sync.overlap",
                            "sync.average_in_collective", "loss_scale",
                            "buffers.fused_accumulation", "buffers.deallocate_pipeline_outputs",
                            "buffers.attention_mask"};
  strategy.defaults.axes.buffers.deallocate_pipeline_outputs = true;
  if (distributed_optimizer) {
    strategy.defaults.keys.insert(strategy.defaults.keys.end(), {"sync.fp32_accumulation", "sync.overlap_gather"});
  }
  strategy.refuse = Refuse;
  strategy.schedules = {Schedule::one_f_one_b, Schedule::interleaved};
  strategy.data_parallel = MakeContiguous;
  strategy.ranks_differ = distributed_optimizer;
  strategy.keeps = {
      {{"*.qkv_in", "*.gu_in", "*.head_in", "*.experts_in", "*.d_qkv_in", "*.d_gu_in", "*.d_head_in", "*.d_shared_in"},
       "variables of LinearWithGradAccumulationAndAsyncCommunication.backward, which returns behind the product that "
       "makes the weight's gradient (core/tensor_parallel/layers.py)"},
      {{"attention_mask"},
       "the batch's, which no kernel of causal attention reads: forward_step names it until the model returns "
       "(pretrain_gpt.py), and layers that are computed again keep what they were called with"},
      {{"flat main gradient of *"},
       "_allreduce_layernorm_grads' flat tensor, until every gradient has been copied back "
       "(core/distributed/finalize_model_grads.py)"},
  };
  return strategy;
}

}  // namespace

std::vector<Strategy> StrategyMegatron() {
  return {
      Megatron("megatron",
               "Megatron-LM: one contiguous fp32 gradient buffer, all-reduced by buckets with the last microbatch",
               false),
      Megatron("megatron-dist-opt",
               "Megatron-LM with the distributed optimizer: buckets are reduce-scattered, masters and moments sharded",
               true)};
}

}  // namespace tidemark
