// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fully_sharded.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

Status Refuse(const Job& job) {
  if (job.layout.pp > 1) {
    return BadKey("layout.pp", "FSDP2 inside a pipeline is not modelled yet",
                  "set layout.pp to 1, or use a ddp-* strategy or nanotron");
  }
  if (!job.axes.shard.params || !job.axes.shard.gradients || !job.axes.shard.optimizer) {
    return BadKey(
        "shard", "fully_shard always shards parameters, gradients and optimizer states",
        "to keep parameters gathered set shard.reshard_after_forward or shard.reshard_after_backward to false");
  }
  if (job.axes.shard.replicas != 1) {
    return BadKey("shard.replicas", "sharding within replicas (HSDP) is not modelled yet", "set shard.replicas to 1");
  }
  return Done{};
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
