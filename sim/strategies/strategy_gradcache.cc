// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/ddp/ddp_preset.h"
#include "sim/strategies/gradcache/cached_encoders.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const bool dual = std::holds_alternative<DualEncoder>(job.network.shape);
  Requirement shards = ShardsNothing(
      axes.shard,
      "GradCache asserts that its models are DistributedDataParallel, which shards nothing: ZeRO-2 and ZeRO-3 refuse "
      "the no_sync that it defers with");
  shards.hint = "leave shard.params, shard.gradients and shard.optimizer at false";  // no other strategy is for it
  const Requirement requirements[] = {
      {dual, "network", "GradCache is for contrastive losses: the network must be a dual encoder",
       "give network.dual_encoder, or use ddp-last"},
      {job.CachesRepresentations(), "gradient_flow.kind", "this strategy is GradCache",
       "use ddp-last for a backward pass per microbatch"},
      shards,
      {axes.sync.when != Sync::When::custom, "sync.when",
       "GradCache synchronises in the last chunk of each encoder (no_sync_except_last), or in every chunk",
       "set sync.when to last or every"},
      {axes.sync.forward_in_no_sync || axes.sync.when == Sync::When::last, "sync.forward_in_no_sync",
       "only a loop that defers synchronisation to its last chunk can leave forward passes outside no_sync",
       "set sync.when to last, or leave sync.forward_in_no_sync at true"},
      {job.last_window.microbatches == 0, "last_window.microbatches",
       "GradCache takes one loss over the whole batch: there is no window to be left incomplete", "remove last_window"},
      {!axes.precision.master, "precision.master", "GradCache's models hold the weights that the optimizer updates",
       "set precision.master to none"},
  };
  TIDEMARK_TRY(Check(requirements));
  return RefuseAsDdpModule(job);
}

/// DDP averages over ranks: right for losses of each rank's own pairs, N times too small for one over those of all.
std::optional<WrongNumbers> WhatIsWrong(const Job& job) {
  const auto* network = std::get_if<DualEncoder>(&job.network.shape);
  if (job.layout.dp == 1 || network == nullptr || network->gather == job.axes.loss_times_ranks) {
    return std::nullopt;
  }
  if (network->gather) {
    return WrongNumbers{
        "loss-not-times-ranks",
        "the loss is over all ranks and is not multiplied by their number: DDP's average makes every gradient that "
        "many times too small",
        "multiply the loss by the number of ranks: gradient_flow.loss_times_ranks: true"};
  }
  return WrongNumbers{
      "loss-times-ranks-in-vain",
      "representations are not gathered, but the loss is multiplied by the number of ranks: every gradient is that "
      "many times too large",
      "gather representations, which the factor is for: network.dual_encoder.gather: true"};
}

/// GradCache (github.com/luyug/GradCache; Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory Limited
/// Setup, 2021) with each encoder under DDP, everything in bf16, no master weights, representations in fp32.
Strategy GradCache(std::string name, std::string summary, Sync::When when = Sync::When::last) {
  Strategy strategy = DdpPreset(std::move(name), std::move(summary), when);
  strategy.defaults.axes.gradient_flow = GradientFlow::gradcache;
  strategy.defaults.keys = {"optimizer_step.kernel",
                            "optimizer_step.clip_norm",
                            "gradient_flow.chunks",
                            "gradient_flow.loss_times_ranks",
                            "sync.when",
                            "sync.bucket_bytes",
                            "sync.first_bucket_bytes",
                            "sync.overlap",
                            "sync.forward_in_no_sync"};
  strategy.refuse = Refuse;
  strategy.wrong = WhatIsWrong;
  strategy.data_parallel = MakeCachedEncoders;
  strategy.keeps = {
      {{"gradient of *"}, "`.grad` stays until optimizer.zero_grad(set_to_none=True), behind all updates"},
      {{"*.representation"},
       "forward_no_grad's list of the chunks' representations lives until torch.cat has joined them all "
       "(grad_cache.py)"},
      {{"*.representations", "*.cache", "random state"},
       "all_reps, cache and all_rnd_states are variables of cache_step, which returns behind the last chunk's backward "
       "pass (grad_cache.py)"},
  };
  return strategy;
}

}  // namespace

std::vector<Strategy> StrategyGradcache() {
  Strategy every = GradCache("gradcache-every",
                             "GradCache as it comes (no_sync_except_last off): gradients are all-reduced in every "
                             "chunk of every encoder",
                             Sync::When::every);
  Strategy outside = GradCache("gradcache-forward-outside",
                               "GradCache's passes written by hand with the forward outside no_sync: a published "
                               "mistake that all-reduces in every chunk; it costs communication and nothing else");
  outside.defaults.axes.sync.forward_in_no_sync = false;
  Strategy unscaled = GradCache("gradcache-unscaled",
                                "GradCache with the loss over all ranks as it is: DDP's average makes gradients too "
                                "small by the number of ranks (declared wrong)");
  unscaled.defaults.axes.loss_times_ranks = false;
  return {
      GradCache("gradcache",
                "GradCache under DDP: one contrastive loss over the whole batch, whose chunks run forward twice; one "
                "all-reduce per encoder, loss multiplied by the number of ranks"),
      every,
      outside,
      unscaled,
  };
}

}  // namespace tidemark
