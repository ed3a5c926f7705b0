// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "sim/schedules/pipeline_schedule.h"
#include "sim/strategies/ddp/replicated.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const bool accumulator = axes.precision.accumulate != axes.precision.gradients;
  const bool enough = job.schedule != Schedule::one_f_one_b || job.Microbatches() / job.Flushes() >= job.layout.pp - 1;
  const bool can_gather = axes.buffers.tp_gather != Buffers::TpGather::async || job.layout.tp == 1 || job.layout.sp;
  const bool plain_gradients = !axes.buffers.gradient_as_bucket_view && axes.buffers.set_to_none;
  const Requirement requirements[] = {
      KeepsOptimizer(job.axes.optimizer_step, "nanotron has no setting for it: masters and moments are on the device"),
      {axes.sync.when == Sync::When::last, "sync.when", "nanotron runs every backward but the last inside no_sync",
       "set sync.when to last"},
      {!axes.shard.params && !axes.shard.gradients, "shard",
       "nanotron shards optimizer states only (ZeRO-1): its zero_stage 2 and 3 mean 1",
       "set shard.params and shard.gradients to false"},
      {axes.shard.replicas == 1, "shard.replicas",
       "nanotron shards optimizer states over the whole data-parallel group", "set shard.replicas to 1"},
      {axes.shard.reshard_after_forward && axes.shard.reshard_after_backward, "shard",
       "nanotron has no parameters to reshard", "use an fsdp2-* strategy, or leave shard.reshard_* alone"},
      {axes.sync.collective == CollectiveKind::all_reduce || axes.shard.optimizer, "sync.collective",
       "nanotron reduces by all-reduce, and by reduce-scatter with ZeRO-1 only",
       "set sync.collective to all_reduce, or shard.optimizer to true"},
      {!axes.shard.optimizer || accumulator, "precision.accumulate",
       "nanotron's ZeRO-1 is modelled with gradients accumulated in a dtype of their own only",
       "set precision.accumulate to fp32, or shard.optimizer to false"},
      {axes.precision.reduce == axes.precision.accumulate, "precision.reduce",
       "nanotron reduces the accumulator itself, in its dtype",
       "give precision.reduce and precision.accumulate the same dtype"},
      {plain_gradients || !accumulator, "buffers",
       "nanotron frees gradients as soon as they are accumulated, and uses no bucket views",
       "leave buffers.gradient_as_bucket_view and buffers.set_to_none alone"},
      {can_gather, "buffers.tp_gather", "async_communication is not supported for ALL_REDUCE mode",
       "set layout.sp to true (tp_mode: REDUCE_SCATTER), or buffers.tp_gather to pooled"},
      NoForLoop(axes.optimizer_step),
  };
  TIDEMARK_TRY(Check(requirements));
  return enough ? Status(Done{})
                : BadKey(FlushKey(job), "nanotron's 1F1B asserts at least pipeline stages - 1 microbatches",
                         HowToFill(job, std::to_string(job.layout.pp - 1)) + ", or schedule to gpipe");
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
  axes.loss = Partition::Loss::softmax_saving;
  strategy.defaults.keys = {
      "optimizer_step.kernel", "optimizer_step.clip_norm", "sync.bucket_bytes", "sync.first_bucket_bytes",
      "sync.overlap",          "sync.collective",          "shard.optimizer",   "buffers.gradient_as_bucket_view",
      "buffers.set_to_none",   "buffers.tp_gather"};
  strategy.refuse = Refuse;
  strategy.schedules = {Schedule::gpipe, Schedule::one_f_one_b};
  strategy.data_parallel = MakeReplicatedWithTies;
  strategy.keeps = {
      {{"gradient of *"},
       "where gradients are not accumulated in a dtype of their own, `.grad` stays until optimizer.zero_grad, behind "
       "all "
       "updates"},
  };
  return {strategy};
}

}  // namespace tidemark
