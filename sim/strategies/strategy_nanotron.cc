// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/replicated.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

Status Refuse(const Job& job) {
  if (job.axes.sync.when != Sync::When::last) {
    return BadKey("sync.when", "nanotron runs every backward but the last inside no_sync", "set sync.when to last");
  }
  if (job.axes.shard.params || job.axes.shard.gradients) {
    return BadKey("shard", "nanotron shards optimizer states only (ZeRO-1): its zero_stage 2 and 3 mean 1",
                  "set shard.params and shard.gradients to false");
  }
  if (job.axes.shard.optimizer && job.axes.precision.accumulate == job.axes.precision.gradients) {
    return BadKey("precision.accumulate",
                  "nanotron's ZeRO-1 is modelled with gradients accumulated in their own dtype only",
                  "set precision.accumulate to fp32, or shard.optimizer to false");
  }
  if (job.schedule == Schedule::one_f_one_b && job.accumulation_steps < job.layout.pp - 1) {
    return BadKey("accumulation_steps", "nanotron's 1F1B asserts at least pipeline stages - 1 microbatches",
                  "raise accumulation_steps to layout.pp - 1, or use schedule: gpipe");
  }
  return Done{};
}

}  // namespace

std::vector<Strategy> StrategyNanotron() {
  Strategy strategy;
  strategy.defaults.name = "nanotron";
  strategy.defaults.summary = "nanotron: DDP with no_sync, gradients accumulated and reduced in fp32, fp32 masters";
  strategy.defaults.sp_with_tp = true;
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = Sync::When::last;
  axes.sync.bucket_bytes = Bytes(25 << 20);  // ddp_bucket_cap_mb = 25
  axes.sync.first_bucket_bytes = Bytes(1 << 20);
  axes.precision.master = DType::fp32;
  axes.precision.accumulate = DType::fp32;
  axes.precision.reduce = DType::fp32;
  axes.precision.optimizer = DType::fp32;
  axes.packing = {true, true};
  axes.buffers.tp_gather = Buffers::TpGather::pooled;  // tp_recompute_allgather = true
  axes.recompute.tp_gather = true;
  axes.loss = Partition::Loss::softmax_saving;
  strategy.refuse = Refuse;
  strategy.data_parallel = MakeReplicated;
  return {strategy};
}

}  // namespace tidemark
