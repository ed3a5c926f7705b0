// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/ddp/ddp_preset.h"

#include <utility>

#include "sim/strategies/ddp/replicated.h"
#include "sim/strategies/requirement.h"

namespace tidemark {
namespace {

/// None of DDP's own options is set.
bool IsPlain(const Axes& axes) {
  return !axes.sync.static_graph && !axes.sync.find_unused_parameters && !axes.buffers.gradient_as_bucket_view &&
         axes.buffers.set_to_none;
}

Status Refuse(const Job& job) {
  TIDEMARK_TRY(RefuseAsDdpModule(job));
  const Sync& sync = job.axes.sync;
  // A stage runs forward passes ahead of their backward passes. A synchronised forward must be followed by exactly one
  // backward pass: of several, DDP reduces the first only, and replicas drift apart without an error.
  const bool once = sync.when == Sync::When::last && sync.forward_in_no_sync;
  const Requirement requirements[] = {
      {sync.forward_in_no_sync || sync.when == Sync::When::last, "sync.forward_in_no_sync",
       "only a loop that defers synchronisation to its last microbatch can leave forward passes outside no_sync",
       "set sync.when to last, or leave sync.forward_in_no_sync at true"},
      {!job.axes.optimizer_step.in_backward || job.layout.GradientRanks() == 1, "optimizer_step.in_backward",
       "DDP has gradients in its buckets until they are reduced; a step from within its hooks is not modelled",
       "set layout.dp and layout.cp to 1, or use fsdp2-scatter-each"},
      {!job.axes.optimizer_step.in_backward || IsPlain(job.axes), "optimizer_step.in_backward",
       "on one rank it is a loop without DDP, which has none of DDP's options",
       "leave sync.static_graph, sync.find_unused_parameters, buffers.gradient_as_bucket_view and buffers.set_to_none "
       "alone"},
      {job.layout.pp == 1 || once, "layout.pp",
       "in a pipeline DDP synchronises in the last backward pass only: several backward passes behind synchronised "
       "forward passes reduce the first of them and let replicas drift apart",
       "use ddp-last (torch.distributed.pipelining arms DDP just before the last backward pass)"},
  };
  return Check(requirements);
}

}  // namespace

Status RefuseAsDdpModule(const Job& job) {
  const Axes& axes = job.axes;
  const Requirement requirements[] = {
      KeepsOptimizer(axes.optimizer_step,
                     "DistributedDataParallel leaves the optimizer to torch.optim, which keeps its state where the "
                     "parameters are: on the device"),
      ShardsNothing(axes.shard,
                    "DistributedDataParallel keeps whole parameters, gradients and optimizer states on every rank"),
      {axes.shard.replicas == 1, "shard.replicas", "DistributedDataParallel does not shard: every rank is a replica",
       "leave shard.replicas at 1"},
      {axes.shard.reshard_after_forward && axes.shard.reshard_after_backward, "shard",
       "DistributedDataParallel has no parameters to reshard",
       "use an fsdp2-* strategy, or leave shard.reshard_* alone"},
      {axes.sync.collective == CollectiveKind::all_reduce, "sync.collective",
       "DistributedDataParallel reduces its buckets by all-reduce", "set sync.collective to all_reduce"},
      GradientsLikeParameters(axes.precision),
      {axes.precision.reduce == axes.precision.gradients, "precision.reduce",
       "DistributedDataParallel reduces gradients in their own dtype",
       "give precision.reduce the dtype of precision.gradients"},
      {axes.precision.accumulate == axes.precision.gradients, "precision.accumulate",
       "autograd adds gradients up in their own dtype",
       "give precision.accumulate the dtype of precision.gradients, or use nanotron for an fp32 accumulator"},
  };
  return Check(requirements);
}

Strategy DdpPreset(std::string name, std::string summary, Sync::When when) {
  Strategy strategy;
  strategy.defaults.name = std::move(name);
  strategy.defaults.summary = std::move(summary);
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = when;
  axes.sync.collective = CollectiveKind::all_reduce;
  axes.sync.bucket_bytes = Bytes(25 << 20);       // bucket_cap_mb = 25
  axes.sync.first_bucket_bytes = Bytes(1 << 20);  // dist._DEFAULT_FIRST_BUCKET_BYTES
  strategy.defaults.keys = {"sync.when",
                            "sync.expression",
                            "sync.step_expression",
                            "sync.bucket_bytes",
                            "sync.first_bucket_bytes",
                            "sync.overlap",
                            "sync.forward_in_no_sync",
                            "sync.static_graph",
                            "sync.find_unused_parameters",
                            "buffers.gradient_as_bucket_view",
                            "buffers.set_to_none",
                            "optimizer_step.kernel",
                            "optimizer_step.clip_norm",
                            "optimizer_step.in_backward"};
  strategy.refuse = Refuse;
  strategy.data_parallel = MakeReplicated;
  strategy.keeps = {
      {{"gradient of *"}, "`.grad` stays until optimizer.zero_grad(set_to_none=True), behind all updates"},
  };
  return strategy;
}

}  // namespace tidemark
