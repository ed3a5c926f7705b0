// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "models/job/validate.h"
#include "models/network/torchtitan_experts.h"
#include "sim/lower/window_steps.h"
#include "sim/strategies/fsdp2/fully_sharded.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

/// Shard(1) of experts' weights, which has no padding (_fsdp_param.py, _init_sharded_param).
bool RowsDivideEvenly(const Job& job) {
  const Experts* experts = ExpertsOf(job.network);
  const Layout& layout = job.layout;
  const std::int64_t shards =
      layout.ep > 1 ? layout.ExpertGradientRanks() : layout.GradientRanks() / job.axes.shard.replicas;
  return experts == nullptr || experts->layer != Experts::Layer::torchtitan ||
         ShardsByExpert(*experts, PartitionOf(job)) ||
         (experts->ffn % shards == 0 && std::get<Decoder>(job.network.shape).hidden % shards == 0);
}

Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  const bool tied = decoder != nullptr && decoder->tied_embeddings;
  const bool keeps_all = !axes.shard.reshard_after_forward && !axes.shard.reshard_after_backward;
  const bool keeps_some = axes.shard.gathered_layers > 0 || axes.shard.reshard_last_unit;
  const Requirement requirements[] = {
      {job.layout.pp == 1 || (keeps_all && axes.sync.when == Sync::When::last), "layout.pp",
       "PyTorch's pipeline schedules run all backward passes of fully_shard unsynchronised and unsharded and reduce "
       "behind the last one; resharding between passes is not modelled there",
       "use fsdp2-keep-all, ddp-last, nanotron, megatron or alpa, or set layout.pp to 1"},
      {job.layout.pp == 1 || !tied, "layout.pp",
       "nothing adds up the sharded gradients of a tied embedding and head that are on different stages",
       "untie the embedding, set layout.pp to 1, or use ddp-last, nanotron or megatron"},
      {axes.loss_scale == LossScale::microbatches || axes.loss_scale == LossScale::global_tokens, "loss_scale",
       "no update divides by the number of microbatches: the loss does",
       "set loss_scale to microbatches, or to global-tokens"},
      ShardsAll(axes.shard, "fully_shard always shards parameters, gradients and optimizer states",
                "set shard.params to true, and to keep parameters gathered shard.reshard_after_forward or "
                "shard.reshard_after_backward to false"),
      {axes.shard.reshard_after_forward || !keeps_some, "shard.reshard_after_forward",
       "with false no unit is resharded after forward: there is none to except from that",
       "set shard.reshard_after_forward to true, or remove shard.gathered_layers and shard.reshard_last_unit"},
      {axes.sync.collective == CollectiveKind::reduce_scatter, "sync.collective",
       "fully_shard reduces gradients by reduce-scatter", "set sync.collective to reduce_scatter"},
      {!axes.buffers.gathers_again() && axes.buffers.tp_gather != Buffers::TpGather::pooled_unsafe, "buffers.tp_gather",
       "DTensor gathers an input into a tensor of its own, waits for it, and autograd keeps it for the backward pass: "
       "there is no pool and no second gather",
       "set buffers.tp_gather to fresh or cached, or use nanotron"},
      {!axes.optimizer_step.in_backward || axes.shard.replicas == 1, "optimizer_step.in_backward",
       "a step behind the all-reduce between replicas is not modelled", "set shard.replicas to 1"},
      {!axes.optimizer_step.in_backward || axes.buffers.set_to_none, "buffers.set_to_none",
       "a step within the backward pass frees each gradient behind its update: there is none to zero",
       "leave buffers.set_to_none at true"},
      {!axes.optimizer_step.in_backward || !axes.optimizer_step.offload, "optimizer_step.in_backward",
       "a step within the backward pass is not modelled for gradients that go to the host",
       "set optimizer_step.in_backward or optimizer_step.offload to false"},
      GradientsLikeParameters(axes.precision),
      {RowsDivideEvenly(job), "layout.dp",
       "more ranks than experts (torchtitan's) are given rows of each, which fully_shard wants to divide evenly: "
       "network.experts.ffn and network.hidden are no multiples of the ranks with the same experts",
       "let layout.dp * layout.cp * layout.tp be at most network.experts.count, or those ranks divide both"},
      {job.layout.ep == 1 || axes.shard.replicas == 1, "shard.replicas",
       "replicas of shards of which each divides the experts over its ranks are not modelled",
       "set layout.ep to 1, or shard.replicas to 1"},
      {job.layout.ep == 1 || axes.loss_scale == LossScale::global_tokens, "loss_scale",
       "fully_shard averages a gradient over the ranks that it is sharded over, which of experts on several ranks are "
       "not all whose tokens they see; torchtitan divides the loss by the tokens of all ranks",
       "set loss_scale to global-tokens, or layout.ep to 1"},
      {job.layout.ep == 1 || !axes.optimizer_step.in_backward, "optimizer_step.in_backward",
       "a step within the backward pass is not modelled for units of which a part is sharded over other ranks",
       "set optimizer_step.in_backward to false, or layout.ep to 1"},
      {axes.precision.accumulate == axes.precision.reduce, "precision.accumulate",
       "fully_shard accumulates deferred gradients in the reduce dtype",
       "give precision.accumulate and precision.reduce the same dtype"},
      {StepsAreSynchronised(job), "sync.step_expression",
       "the optimizer would step behind a microbatch that does not synchronise: fully_shard gives it sharded gradients "
       "only, so that what was not reduce-scattered would be left out of the step",
       "let sync.expression hold wherever the optimizer steps"},
  };
  return Check(requirements);
}

Status RefuseHybrid(const Job& job) {
  TIDEMARK_TRY(Refuse(job));
  const Requirement requirement[] = {
      {job.axes.shard.replicas > 1, "shard.replicas",
       "hsdp shards within each replica and all-reduces between replicas: with one replica there is nothing to "
       "all-reduce",
       "set shard.replicas to 2 or more (it divides layout.dp), or use fsdp2-scatter-each"},
  };
  return Check(requirement);
}

/// _fsdp_param_group.py, and foreach_reduce of _fsdp_collectives.py.
std::vector<IdleClaim> Keeps() {
  return {
      {{"gathered *"},
       "comm_ctx.all_gather_state: in forward the output of an all-gather stays until the next unit's has been copied "
       "out, so that no copy-in lands in it (wait_for_unshard)"},
      {{"unsharded *"},
       "a unit is resharded by its post_forward and post_backward hooks; what is kept over them goes in those of a "
       "later pass, and in a pipeline with the action that reduces"},
      {{"gradient of *"},
       "foreach_reduce drops its list of gradients behind the copy-in, which takes two steps where the reduce dtype "
       "does not hold all of their values"},
      {{"brought shard of *"}, "on one rank, where nothing is cast, the loop's variable is bound to it until the next"},
      {{"cast *"}, "on one rank the cast stands in for the gathered parameters, until the unit is resharded"},
      {{"scatter input of *"},
       "comm_ctx.reduce_scatter_state: until the next unit's post_backward, or the end of the backward pass, has "
       "waited for the reduce-scatter"},
      {{"scatter output of *"},
       "what goes to the host is a view of it until each parameter's part has gone (foreach_reduce); "
       "_all_reduce_state: "
       "with replicas what was all-reduced stays until the backward pass ends (finalize_backward)"},
      {{"partly reduced gradient of *"},
       "_partial_reduce_output: an argument of foreach_reduce, which adds it before it all-reduces, until that "
       "returns"},
      {{"sharded gradient of *"}, "`.grad` stays until optimizer.zero_grad(set_to_none=True), behind all updates"},
  };
}

/// torch.distributed.fsdp.fully_shard as torchtitan applies it: fp32 shards, bf16 parameters for compute, fp32
/// reduction.
Strategy Fsdp2(std::string name, std::string summary, Sync::When when, bool reshard_after_forward,
               bool reshard_after_backward) {
  Strategy strategy;
  strategy.defaults.name = std::move(name);
  strategy.defaults.summary = std::move(summary);
  strategy.defaults.sp_with_tp = true;
  strategy.defaults.divides_experts = true;
  strategy.defaults.experts = Experts::Layer::torchtitan;
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
  axes.buffers.wide_chunk_sum = true;
  strategy.defaults.keys = {"sync.when",
                            "sync.expression",
                            "sync.step_expression",
                            "shard.replicas",
                            "shard.reshard_after_forward",
                            "shard.reshard_after_backward",
                            "shard.reshard_last_unit",
                            "shard.gathered_layers",
                            "shard.prefetch_forward",
                            "shard.prefetch_backward",
                            "buffers.tp_gather",
                            "buffers.set_to_none",
                            "buffers.wide_chunk_sum",
                            "loss_scale",
                            "optimizer_step.kernel",
                            "optimizer_step.clip_norm",
                            "optimizer_step.in_backward",
                            "optimizer_step.offload"};
  strategy.refuse = Refuse;
  strategy.data_parallel = MakeFullySharded;
  strategy.keeps = Keeps();
  strategy.running_sum = SumInMasterWhereScattered;
  strategy.host_adds = true;
  return strategy;
}

Strategy Hybrid() {
  Strategy strategy = Fsdp2(
      "hsdp", "FSDP2 within shard.replicas replicas: scattered every microbatch, all-reduced between them in the last",
      Sync::When::every, true, true);
  std::erase(strategy.defaults.keys, "optimizer_step.in_backward");
  strategy.defaults.divides_experts = false;
  strategy.refuse = RefuseHybrid;
  strategy.data_parallel = MakeHybridSharded;
  strategy.running_sum = [](const Job& job) { return RunningSum{job.axes.precision.reduce, "precision.reduce"}; };
  strategy.host_adds = false;  // partial sums wait on the device for their all-reduce
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
      Hybrid(),
  };
}

}  // namespace tidemark
