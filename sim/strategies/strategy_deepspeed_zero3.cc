// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/deepspeed_defaults.h"
#include "sim/strategies/deepspeed/zero3.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const Precision& precision = axes.precision;
  const Requirement requirements[] = {
      {job.layout.pp == 1, "layout.pp", "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
       "set layout.pp to 1"},
      {!axes.sync.coalesce, "sync.coalesce", "coalesce_grad_reduction is not modelled for ZeRO stage 3 yet",
       "set sync.coalesce to false: gradients are then reduced in every microbatch"},
      {axes.sync.when == Sync::When::every, "sync.when",
       "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3",
       "set sync.when to every"},
      {axes.sync.collective == CollectiveKind::reduce_scatter, "sync.collective",
       "ZeRO stage 3 reduces gradients by reduce-scatter", "set sync.collective to reduce_scatter"},
      HasBucket(axes.sync, kDeepSpeedBucketHint),
      ShardsAll(axes.shard, "ZeRO stage 3 always partitions parameters, gradients and optimizer states"),
      {axes.shard.replicas == 1, "shard.replicas", "partitioning within replicas (hpZ, MiCS) is not modelled yet",
       "set shard.replicas to 1"},
      {axes.buffers.contiguous_gradients, "buffers.contiguous_gradients",
       "ZeRO stage 3 without contiguous_gradients is not modelled yet", "set buffers.contiguous_gradients to true"},
      GradientsLikeParameters(precision),
      {precision.master == DType::fp32, "precision.master", "ZeRO stage 3 updates fp32 masters",
       "set precision.master to fp32"},
      {precision.optimizer == DType::fp32, "precision.optimizer",
       "the optimizer's moments have the dtype of the fp32 masters", "set precision.optimizer to fp32"},
      OffloadsAdamW(job),
      OffloadIsFused(axes.optimizer_step),
  };
  return Check(requirements);
}

}  // namespace

/// The defaults are those of deepspeed/runtime/zero/config.py; overlap_comm is on for stage 3 alone, and gradients
/// accumulate in the model's dtype where data_types.grad_accum_dtype is not given (engine.py, get_data_types).
std::vector<Strategy> StrategyDeepspeedZero3() {
  Strategy strategy;
  strategy.defaults.name = "deepspeed-zero3";
  strategy.defaults.summary =
      "DeepSpeed ZeRO stage 3: parameters gathered module by module, gradients partitioned in every microbatch";
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = Sync::When::every;
  axes.sync.collective = CollectiveKind::reduce_scatter;
  axes.sync.bucket_elements = kDeepSpeedBucketElements;
  axes.shard.params = axes.shard.gradients = axes.shard.optimizer = true;
  axes.precision.master = DType::fp32;
  axes.precision.optimizer = DType::fp32;
  strategy.defaults.keys = {"sync.bucket_elements",    "sync.overlap",
                            "shard.reuse_distance",    "shard.persistence_threshold",
                            "shard.prefetch_elements", "shard.max_live_elements",
                            "optimizer_step.kernel",   "optimizer_step.clip_norm",
                            "optimizer_step.offload"};
  strategy.refuse = Refuse;
  strategy.data_parallel = MakeZero3;
  strategy.keeps = {
      {{"gathered *"},
       "release_sub_module leaves what is used again within max_reuse_distance, and until the optimizer step what is "
       "below param_persistence_threshold (partitioned_param_coordinator.py)"},
      {{"flat gather of *"},
       "AllGatherCoalescedHandle holds one flat tensor until the last of its parameters was waited for "
       "(partition_parameters.py)"},
      {{"interleaved * gradients"},
       "the scattered parts are views of it, until the last of them is in its partition (stage3.py, partition_grads)"},
      {{"partition on the device of *"}, "a variable of partition_grads' loop over the parameters (stage3.py)"},
      {{"joined gradients of *", "fp32 gradients of *", "new parameters of *"},
       "one tensor of the whole sub group each, cut by block here: it is cast, updated with and copied as a whole, "
       "then dropped (stage3.py, _prepare_sub_group, _release_sub_group)"},
      {{"norm of *"}, "norm_groups is a variable of step, until its last sub group is updated (stage3.py)"},
  };
  strategy.fixed_bucket = [](const Job& job) { return job.axes.sync.bucket_elements; };
  return {std::move(strategy)};
}

}  // namespace tidemark
