// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "sim/lower/window_steps.h"
#include "sim/strategies/colossalai/low_level_zero.h"
#include "sim/strategies/ddp/ddp_preset.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

/// TorchDDPPlugin wraps DistributedDataParallel and hands no_sync through.
Strategy DdpWithNoSync() {
  return DdpPreset("colossalai-ddp",
                   "Colossal-AI's TorchDDPPlugin with booster.no_sync: DDP, all-reduced in the last microbatch",
                   Sync::When::last);
}

Status RefuseDdp(const Job& job) {
  const Requirement requirements[] = {
      {job.layout.pp == 1, "layout.pp",
       "TorchDDPPlugin has no pipelines, and HybridParallelPlugin does not use torch DDP in one: it would "
       "accumulate too often",
       "set layout.pp to 1, or use megatron or nanotron"},
  };
  TIDEMARK_TRY(Check(requirements));
  return DdpWithNoSync().refuse(job);
}

/// The masters are `param.float()`, and torch.optim makes moments like the parameters it is given. All-fp64 is not
/// theirs, but lets the arithmetic be checked closely.
bool HasMasters(const Precision& precision) {
  return !precision.master || *precision.master == DType::fp32 ||
         (*precision.master == DType::fp64 && precision.params == DType::fp64);
}

Status RefusePrecision(const Job& job) {
  const Precision& precision = job.axes.precision;
  const Requirement requirements[] = {
      GradientsLikeParameters(precision),
      DoesNotClip(job.axes.optimizer_step,
                  "clipping is not modelled as a setting: LowLevelZeroOptimizer measures the norm and multiplies "
                  "gradients whether or not it clips, and nothing would change"),
      {precision.accumulate == precision.gradients, "precision.accumulate",
       "LowLevelZeroOptimizer adds gradients up in the dtype of the parameters, in .grad and in its gradient store",
       "give precision.accumulate the dtype of precision.gradients; communication_dtype is precision.reduce"},
      {HasMasters(precision), "precision.master", "LowLevelZeroOptimizer keeps masters in fp32 (master_weights)",
       "set precision.master to fp32, or to none for master_weights=False"},
      {precision.optimizer == precision.master.value_or(precision.params), "precision.optimizer",
       "moments have the dtype of what the optimizer updates: the masters, or without masters the parameters",
       "give precision.optimizer the dtype of precision.master"},
      {job.layout.tp == 1 || precision.params != DType::fp32, "precision.params",
       "HybridParallelPlugin: Please set precision to 'fp16' or 'bf16' when using ZeRO.",
       "set precision.params to bf16, or layout.tp to 1"},
  };
  return Check(requirements);
}

Status RefuseZero(const Job& job) {
  const Axes& axes = job.axes;
  const Requirement requirements[] = {
      KeepsOptimizer(job.axes.optimizer_step, "cpu_offload of LowLevelZeroPlugin is not modelled yet"),
      {axes.shard.optimizer, "shard.optimizer", "LowLevelZeroPlugin only supports stage 1/2 training",
       "set shard.optimizer to true, or use colossalai-ddp to shard nothing"},
      {!axes.shard.params, "shard.params", "LowLevelZeroPlugin only supports stage 1/2 training",
       "set shard.params to false, or use colossalai-gemini or an fsdp2-* strategy to shard parameters"},
      {axes.shard.replicas == 1, "shard.replicas", "extra_dp_size of LowLevelZeroPlugin is not modelled",
       "set shard.replicas to 1"},
      HasBucket(axes.sync, "the plugin's default is 12582912 (reduce_bucket_size_in_m=12)"),
  };
  TIDEMARK_TRY(Check(requirements));
  return RefusePrecision(job);
}

Status RefuseZero1(const Job& job) {
  TIDEMARK_TRY(RefuseZero(job));
  const Requirement requirements[] = {
      {job.layout.pp == 1, "layout.pp",
       "pipelines of HybridParallelPlugin with zero_stage 1 are not modelled: it runs the whole schedule in no_sync "
       "and reduces behind it",
       "set layout.pp to 1, or use nanotron or megatron"},
      {job.axes.sync.collective == CollectiveKind::all_reduce, "sync.collective",
       "LowLevelZeroOptimizer all-reduces in stage 1", "set sync.collective to all_reduce, or use colossalai-zero2"},
      {StepsAreSynchronised(job), "sync.step_expression",
       "LowLevelZeroOptimizer.step() returns without a word while require_grad_sync is False, and without synchronised "
       "gradients it has nothing to apply",
       "step where sync.expression synchronises"},
  };
  return Check(requirements);
}

/// Both plugins refuse no_sync with stage 2, each in its own words.
Status RefuseNoSync(const Job& job) {
  const char* const low_level =
      "The plugin LowLevelZeroPlugin_ZeRO-2 does not support no_sync. (and below it optimizer.backward: ZeRO2("
      "partition_grads) and no_sync are not compatible)";
  const char* const hybrid =
      "ZERO2 is not compatible with no_sync function, please run gradient accumulation with gradient synchronization "
      "allowed. (HybridParallelPlugin, which layout.tp asks for; booster.no_sync of LowLevelZeroPlugin_ZeRO-2 does not "
      "support no_sync either, and optimizer.backward: ZeRO2(partition_grads) and no_sync are not compatible)";
  const bool always = HoldsThroughout(job, [](const WindowPlace& place) { return place.synchronises; });
  const Requirement requirements[] = {
      {always && job.axes.sync.when != Sync::When::last, "sync.when", job.layout.tp > 1 ? hybrid : low_level,
       "set sync.when to every, or use colossalai-zero1, which has no_sync"},
  };
  return Check(requirements);
}

Status RefuseZero2(const Job& job) {
  TIDEMARK_TRY(RefuseZero(job));
  const Requirement requirements[] = {
      {job.layout.pp == 1, "layout.pp",
       "To avoid prohibitive gradient synchronization costs, zero stage must be 0 or 1 when using pipeline parallelism",
       "set layout.pp to 1"},
      {job.axes.sync.collective == CollectiveKind::reduce_scatter, "sync.collective",
       "LowLevelZeroOptimizer reduce-scatters in stage 2",
       "set sync.collective to reduce_scatter, or use colossalai-zero1"},
  };
  TIDEMARK_TRY(Check(requirements));
  return RefuseNoSync(job);
}

Strategy ColossalDdp() {
  Strategy strategy = DdpWithNoSync();
  strategy.refuse = RefuseDdp;
  return strategy;
}

/// LowLevelZeroPlugin with its defaults, bf16 in place of fp16: reduce_bucket_size_in_m = 12, overlap_communication,
/// communication_dtype that of the parameters, fp32 masters.
Strategy LowLevelZeroPlugin(std::string name, std::string summary) {
  Strategy strategy;
  strategy.defaults.name = std::move(name);
  strategy.defaults.summary = std::move(summary);
  Axes& axes = strategy.defaults.axes;
  axes.shard.optimizer = true;
  axes.sync.bucket_elements = 12 << 20;
  axes.precision.master = DType::fp32;
  axes.precision.optimizer = DType::fp32;
  strategy.defaults.keys = {"sync.when",    "sync.expression",      "sync.step_expression", "sync.bucket_elements",
                            "sync.overlap", "optimizer_step.kernel"};
  strategy.data_parallel = MakeLowLevelZero;
  strategy.keeps = {
      {{"gradient of *", "padded gradient of *"},
       "the bucket store holds gradients until reset, at the end of _run_reduction"},
      {{"stored gradients *"}, "the gradient store keeps all slices until zero_grad (bookkeeping/gradient_store.py)"},
      {{"cast gradient part of *"},
       "`.grad` of the masters: step releases all behind all updates (release_param_grad)"},
      {{"updated part of *", "flat updated parts *", "gathered parameters *", "gathered copy of *"},
       "what TensorBucket.all_gather holds until it returns, and its members until it is emptied "
       "(bookkeeping/tensor_bucket.py)"},
  };
  return strategy;
}

Strategy Zero1() {
  Strategy strategy = LowLevelZeroPlugin(
      "colossalai-zero1",
      "Colossal-AI's LowLevelZeroPlugin, stage 1: no_sync, then all-reduce; masters and moments are sharded");
  strategy.defaults.axes.sync.when = Sync::When::last;
  strategy.refuse = RefuseZero1;
  return strategy;
}

Strategy Zero2() {
  Strategy strategy = LowLevelZeroPlugin(
      "colossalai-zero2",
      "Colossal-AI's LowLevelZeroPlugin, stage 2: gradients are reduce-scattered in every microbatch, one slice kept");
  strategy.defaults.axes.shard.gradients = true;
  strategy.defaults.axes.sync.when = Sync::When::every;
  strategy.defaults.axes.sync.collective = CollectiveKind::reduce_scatter;
  strategy.refuse = RefuseZero2;
  strategy.keeps.push_back({{"flat gradients *"}, "flat_grads is a variable of _run_reduction, until it returns"});
  return strategy;
}

}  // namespace

std::vector<Strategy> StrategyColossalai() { return {ColossalDdp(), Zero1(), Zero2()}; }

}  // namespace tidemark
