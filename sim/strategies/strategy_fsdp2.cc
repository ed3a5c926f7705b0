// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fully_sharded.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const Sync no_buckets;
  const bool sharded = axes.shard.params && axes.shard.gradients && axes.shard.optimizer;
  const bool plain_gradients = !axes.buffers.gradient_as_bucket_view && axes.buffers.set_to_none;
  const Requirement requirements[] = {
      {job.layout.pp == 1, "layout.pp", "FSDP2 inside a pipeline is not modelled yet",
       "set layout.pp to 1, or use a ddp-* strategy or nanotron"},
      {sharded, "shard", "fully_shard always shards parameters, gradients and optimizer states",
       "to keep parameters gathered set shard.reshard_after_forward or shard.reshard_after_backward to false"},
      {axes.shard.replicas == 1, "shard.replicas", "sharding within replicas (HSDP) is not modelled yet",
       "set shard.replicas to 1"},
      {axes.sync.collective == CollectiveKind::reduce_scatter, "sync.collective",
       "fully_shard reduces gradients by reduce-scatter", "set sync.collective to reduce_scatter"},
      {axes.sync.bucket_bytes == no_buckets.bucket_bytes &&
           axes.sync.first_bucket_bytes == no_buckets.first_bucket_bytes,
       "sync.bucket_bytes", "fully_shard has no buckets: a block is a unit", "leave bucket sizes alone"},
      {axes.sync.overlap, "sync.overlap", "fully_shard always scatters beside the next unit's backward",
       "leave sync.overlap alone"},
      {plain_gradients, "buffers", "bucket views and gradients zeroed in place belong to DistributedDataParallel",
       "leave buffers.gradient_as_bucket_view and buffers.set_to_none alone"},
      {axes.precision.gradients == axes.precision.params, "precision.gradients",
       "PyTorch makes gradients in the dtype of their parameters",
       "give precision.gradients the dtype of precision.params"},
      {axes.precision.accumulate == axes.precision.reduce, "precision.accumulate",
       "fully_shard accumulates deferred gradients in the reduce dtype",
       "give precision.accumulate and precision.reduce the same dtype"},
  };
  return Check(requirements);
}

/// torch.distributed.fsdp.fully_shard as torchtitan applies it: fp32 shards, bf16 parameters for compute, fp32
/// reduction.
Strategy Fsdp2(std::string name, std::string summary, Sync::When when, bool reshard_after_forward,
               bool reshard_after_backward) {
  Strategy strategy;
  strategy.defaults.name = std::move(name);
  strategy.defaults.summary = std::move(summary);
  strategy.defaults.sp_with_tp = true;
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = when;
  axes.sync.collective = CollectiveKind::reduce_scatter;
  axes.shard.params = axes.shard.gradients = axes.shard.optimizer = true;
  axes.shard.reshard_after_forward = reshard_after_forward;
  axes.shard.reshard_after_backward = reshard_after_backward;
  axes.precision.master = DType::fp32;
  axes.precision.reduce = DType::fp32;
  axes.precision.accumulate = DType::fp32;
  axes.precision.optimizer = DType::fp32;
  strategy.defaults.keys = {"sync.when", "sync.expression", "shard.reshard_after_forward",
                            "shard.reshard_after_backward"};
  strategy.refuse = Refuse;
  strategy.data_parallel = MakeFullySharded;
  return strategy;
}

}  // namespace

std::vector<Strategy> StrategyFsdp2() {
  return {
      Fsdp2("fsdp2-scatter-each", "FSDP2 as torchtitan runs it: gradients are reduce-scattered in every microbatch",
            Sync::When::every, true, true),
      Fsdp2("fsdp2-defer",
            "FSDP2 with set_requires_gradient_sync(is_last): unsharded gradients accumulate, scattered once",
            Sync::When::last, true, true),
      Fsdp2("fsdp2-keep-after-backward",
            "fsdp2-defer with set_reshard_after_backward(is_last): parameters stay gathered between microbatches",
            Sync::When::last, true, false),
      Fsdp2("fsdp2-keep-all",
            "fsdp2-keep-after-backward without resharding after forward: one gather a step, like ZeRO-1",
            Sync::When::last, false, false),
  };
}

}  // namespace tidemark
