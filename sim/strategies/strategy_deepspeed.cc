// SPDX-License-Identifier: Apache-2.0
#include <variant>

#include "sim/lower/window_steps.h"
#include "sim/strategies/deepspeed/deepspeed_bf16.h"
#include "sim/strategies/deepspeed/deepspeed_defaults.h"
#include "sim/strategies/deepspeed/deepspeed_partitioned.h"
#include "sim/strategies/deepspeed/deepspeed_plain.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

// Texts in quotation marks of the real system, and its defaults, are those of DeepSpeed at edaa7221:
// deepspeed/runtime/engine.py (no_sync, coalesce_grad_reduction, step, _do_optimizer_sanity_check,
// communication_data_type), runtime/zero/config.py, runtime/pipe/engine.py.
//
// How the config's keys are called here:
//   zero_optimization.reduce_bucket_size                  sync.bucket_elements
//   zero_optimization.overlap_comm                        sync.overlap
//   zero_optimization.reduce_scatter                      sync.collective: reduce_scatter (true) or all_reduce (false)
//   zero_optimization.use_multi_rank_bucket_allreduce     sync.multi_rank_bucket
//   zero_optimization.contiguous_gradients                buffers.contiguous_gradients
//   data_types.grad_accum_dtype                           precision.accumulate
//   communication_data_type                               precision.reduce
//   set_gradient_accumulation_boundary by hand, no_sync   sync.when: custom
//   zero_optimization.offload_optimizer.device: cpu        optimizer_step.offload
// Loss scaling and round_robin_gradients are not modelled, nor is the norm that ZeRO takes whether or not it
// clips, from a copy of one gradient at a time in fp64. optimizer_step.kernel is about a client's torch.optim (or
// torch_adam): DeepSpeed's FusedAdam is the fused one. Stages 1 and 2 take SGD as with zero_allow_untested_optimizer.

namespace tidemark {
namespace {

bool ReducesOnlyToStep(const Job& job) {
  return HoldsThroughout(job, [](const WindowPlace& place) { return place.last || !place.synchronises; });
}

bool IsTied(const Job& job) {
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  return decoder != nullptr && decoder->tied_embeddings;
}

/// What holds for every stage below 3.
Status RefuseAlways(const Job& job) {
  const Precision& precision = job.axes.precision;
  const Requirement requirements[] = {
      HasBucket(job.axes.sync, kDeepSpeedBucketHint),
      GradientsLikeParameters(precision),
      {precision.optimizer == precision.master.value_or(precision.params), "precision.optimizer",
       "moments have the dtype of what the optimizer updates",
       "give precision.optimizer the dtype of precision.master, or of precision.params where there is none"},
      {StepsAreSynchronised(job), "sync.step_expression",
       "It is illegal to call Engine.step() inside no_sync context manager",
       "step behind microbatches that synchronise only"},
  };
  return Check(requirements);
}

constexpr Requirement BoundaryOnly(bool holds) {
  return {holds, "sync.when", "ZeRO stages 0 and 1 communicate only at gradient accumulation boundaries",
          "set sync.when to last, or use deepspeed-zero2, which reduces in every microbatch"};
}

Status RefusePlain(const Job& job) {
  TIDEMARK_TRY(RefuseAlways(job));
  const Axes& axes = job.axes;
  const bool fp32 = axes.precision.params == DType::fp32;
  const Requirement requirements[] = {
      KeepsOptimizer(job.axes.optimizer_step, "offload_optimizer is a setting of ZeRO, whose stages begin with 1"),
      BoundaryOnly(axes.sync.when != Sync::When::every),
      {!axes.sync.coalesce, "sync.coalesce", "coalesce_grad_reduction requires ZeRO stage 1/2/3, got stage 0",
       "use deepspeed-coalesce"},
      {axes.precision.accumulate == axes.precision.params, "precision.accumulate",
       "unsupported mix of model_dtype and grad_accum_dtype",
       "give precision.accumulate the dtype of precision.params, or use deepspeed-bf16"},
      {axes.precision.master.has_value() != fp32, "precision.master",
       "DeepSpeed's stage 0 keeps masters of 16-bit parameters (FP16_Optimizer), and none of fp32 ones",
       "set precision.master to fp32 for 16-bit parameters, and leave it out for fp32"},
      {!axes.precision.master || axes.precision.master == DType::fp32, "precision.master",
       "FP16_Optimizer's masters are fp32", "set precision.master to fp32"},
      {fp32 || job.optimizer == OptimizerKind::adamw, "optimizer",
       "for other optimizers than FusedAdam DeepSpeed takes FP16_UnfusedOptimizer, which is not modelled",
       "set optimizer to adamw"},
      {fp32 || axes.optimizer_step.kernel == OptimizerStep::Kernel::fused, "optimizer_step.kernel",
       "for other optimizers than FusedAdam DeepSpeed takes FP16_UnfusedOptimizer, which is not modelled",
       "set optimizer_step.kernel to fused"},
      {job.layout.pp == 1 || axes.precision.params != DType::bf16, "layout.pp",
       "DeepSpeed runs bf16 pipelines with BF16_Optimizer, also in stage 0", "use deepspeed-bf16"},
  };
  return Check(requirements);
}

Status RefuseBf16(const Job& job) {
  TIDEMARK_TRY(RefuseAlways(job));
  const Axes& axes = job.axes;
  const Requirement requirements[] = {
      KeepsOptimizer(job.axes.optimizer_step,
                     "with offload_optimizer DeepSpeed takes the optimizer of ZeRO stage 1 in place of BF16_Optimizer"),
      BoundaryOnly(axes.sync.when != Sync::When::every),
      {!axes.sync.coalesce, "sync.coalesce",
       "coalesce_grad_reduction does not yet support optimizer wrapper BF16_Optimizer",
       "use deepspeed-coalesce, which accumulates in bf16"},
      {axes.precision.params == DType::bf16, "precision.params", "BF16_Optimizer is for bf16 parameters",
       "set precision.params to bf16, or use deepspeed-zero1"},
      {axes.precision.accumulate == DType::fp32, "precision.accumulate",
       "BF16_Optimizer is what DeepSpeed takes for bf16 parameters with fp32 accumulation",
       "set precision.accumulate to fp32, or use deepspeed-zero1 to accumulate in bf16"},
      {axes.precision.master == DType::fp32, "precision.master", "BF16_Optimizer's masters are fp32",
       "set precision.master to fp32"},
      {job.layout.pp == 1 || !IsTied(job), "layout.pp",
       "the exchange of a tied embedding's gradients inside DeepSpeed's flat gradient is not modelled",
       "set layout.pp to 1, or untie the embedding"},
  };
  return Check(requirements);
}

/// DeepSpeedZeroOptimizer, whatever the stage.
Status RefusePartitioned(const Job& job) {
  TIDEMARK_TRY(RefuseAlways(job));
  const Axes& axes = job.axes;
  const Requirement requirements[] = {
      {!axes.sync.coalesce || axes.sync.when == Sync::When::last, "sync.when",
       "one coalesce_grad_reduction block is one optimizer step, reduced once on leaving it", "set sync.when to last"},
      {!axes.sync.coalesce || job.layout.pp == 1, "layout.pp",
       "coalesce_grad_reduction is not supported under pipeline parallelism", "set layout.pp to 1"},
      {axes.buffers.contiguous_gradients, "buffers.contiguous_gradients",
       "reduction without a contiguous buffer (contiguous_gradients: false) is not modelled",
       "leave buffers.contiguous_gradients at true"},
      {axes.precision.master == DType::fp32, "precision.master",
       "ZeRO keeps fp32 masters of its part, also of fp32 parameters", "set precision.master to fp32"},
      OffloadsAdamW(job),
      OffloadIsFused(axes.optimizer_step),
  };
  return Check(requirements);
}

Status RefuseZero1(const Job& job) {
  TIDEMARK_TRY(RefusePartitioned(job));
  const Axes& axes = job.axes;
  const bool bf16_optimizer = axes.precision.params == DType::bf16 && axes.precision.accumulate == DType::fp32;
  const Requirement requirements[] = {
      BoundaryOnly(axes.sync.when != Sync::When::every),
      {ReducesOnlyToStep(job), "sync.expression",
       "a second reduction before step() overwrites the first one's averaged_gradients",
       "synchronise only where the optimizer steps"},
      {!bf16_optimizer, "precision.accumulate",
       "DeepSpeed takes BF16_Optimizer for bf16 parameters with fp32 accumulation in stage 1", "use deepspeed-bf16"},
      {axes.precision.accumulate == axes.precision.params, "precision.accumulate",
       "ZeRO stage 1 with grad_accum reduces a temporary copy of it, and is not modelled",
       "give precision.accumulate the dtype of precision.params"},
      {job.layout.pp == 1 || !axes.sync.overlap, "sync.overlap",
       "Pipeline parallelism does not support overlapped communication", "set sync.overlap to false"},
      {job.layout.pp == 1 || !IsTied(job), "layout.pp",
       "the exchange of a tied embedding's gradients before ZeRO's reduction is not modelled",
       "set layout.pp to 1, or untie the embedding"},
  };
  return Check(requirements);
}

Status RefuseZero2(const Job& job) {
  TIDEMARK_TRY(RefusePartitioned(job));
  const Axes& axes = job.axes;
  const bool drops = job.last_window.microbatches > 0 && job.last_window.policy == LastWindow::Policy::drop;
  const Requirement requirements[] = {
      {job.layout.pp == 1, "layout.pp", "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
       "set layout.pp to 1, or use deepspeed-zero1 or deepspeed-bf16"},
      {axes.sync.coalesce || axes.sync.when == Sync::When::every, "sync.when",
       "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2",
       "set sync.when to every, or use deepspeed-coalesce to reduce once per step"},
      {axes.precision.accumulate == axes.precision.params, "precision.accumulate",
       "ZeRO stage 2 adds microbatches up in the parameters' dtype, whatever grad_accum_dtype says",
       "give precision.accumulate the dtype of precision.params"},
      {!drops || axes.sync.coalesce, "last_window.policy",
       "ZeRO stage 2 keeps the averaged gradients of dropped microbatches and adds the next window to them",
       "set last_window.policy to carry-over, rescaled or not-rescaled"},
  };
  return Check(requirements);
}

/// What set_gradient_accumulation_boundary and no_sync need, which stages 0 and 1 alone take.
std::vector<std::string> BoundaryKeys() { return {"sync.expression", "sync.step_expression"}; }

void AddKeys(Strategy& strategy, const std::vector<std::string>& keys) {
  strategy.defaults.keys.insert(strategy.defaults.keys.end(), keys.begin(), keys.end());
}

Strategy DeepSpeed(std::string name, std::string summary, Sync::When when) {
  Strategy strategy;
  strategy.defaults.name = std::move(name);
  strategy.defaults.summary = std::move(summary);
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = when;
  axes.sync.bucket_elements = kDeepSpeedBucketElements;
  axes.sync.overlap = false;
  axes.precision.master = DType::fp32;
  axes.precision.optimizer = DType::fp32;
  strategy.defaults.keys = {"sync.when", "sync.bucket_elements", "optimizer_step.kernel", "optimizer_step.clip_norm"};
  return strategy;
}

Strategy Zero(std::string name, std::string summary, Sync::When when, bool gradients) {
  Strategy strategy = DeepSpeed(std::move(name), std::move(summary), when);
  strategy.defaults.axes.shard.optimizer = true;
  strategy.defaults.axes.shard.gradients = gradients;
  strategy.defaults.axes.sync.collective = CollectiveKind::reduce_scatter;
  AddKeys(strategy,
          {"sync.overlap", "sync.collective", "sync.coalesce", "sync.multi_rank_bucket", "optimizer_step.offload"});
  if (!gradients) {
    AddKeys(strategy, BoundaryKeys());
  }
  strategy.refuse = gradients ? RefuseZero2 : RefuseZero1;
  strategy.schedules = {Schedule::one_f_one_b};
  strategy.data_parallel = MakeDeepSpeedPartitioned;
  strategy.keeps = {
      {{"averaged gradients of own part"},
       "step sets averaged_gradients to None behind the cast of their flat copy (stage_1_and_2.py)"},
      {{"flat gradients for the masters"},
       "`.grad` of the fp32 partition, which step drops when the optimizer has done all of it (stage_1_and_2.py)"},
      {{"reduction bucket", "reduction bucket made by the pipeline"},
       "IPG buffers are let go of at the end of the epilogue, behind its additions; reduce_gradients appends one for "
       "pipelines that nothing writes (stage_1_and_2.py)"},
  };
  strategy.fixed_bucket = [](const Job& job) { return job.axes.sync.bucket_elements; };
  return strategy;
}

Strategy Zero0() {
  Strategy strategy =
      DeepSpeed("deepspeed-zero0", "DeepSpeed without ZeRO: one reduction behind the last backward", Sync::When::last);
  AddKeys(strategy, BoundaryKeys());
  strategy.refuse = RefusePlain;
  strategy.schedules = {Schedule::one_f_one_b};
  strategy.data_parallel = MakeDeepSpeedPlain;
  strategy.keeps = {
      {{"gradient of *"},
       "FP16_Optimizer.step sets `.grad` to None when all are flattened (fp16/fused_optimizer.py); without masters "
       "zero_grad does, behind all updates"},
      {{"bucket slot of *", "cast bucket slot of *"},
       "the flat tensor of a bucket is a variable of allreduce_and_copy, its cast one of allreduce_bucket (engine.py)"},
  };
  return strategy;
}

/// The strategy is BF16_Optimizer with communication_data_type: fp32, as those who choose fp32 accumulation set it. A
/// config that sets none has precision.reduce: bf16: allreduce_bucket then casts what is accumulated.
Strategy Bf16() {
  Strategy strategy =
      DeepSpeed("deepspeed-bf16",
                "DeepSpeed's BF16_Optimizer: ZeRO-1 with bf16 gradients added to a flat fp32 one, reduced in fp32",
                Sync::When::last);
  strategy.defaults.axes.shard.optimizer = true;
  strategy.defaults.axes.precision.accumulate = DType::fp32;
  strategy.defaults.axes.precision.reduce = DType::fp32;
  strategy.defaults.keys = BoundaryKeys();
  AddKeys(strategy, {"sync.when", "optimizer_step.kernel", "optimizer_step.clip_norm"});
  strategy.refuse = RefuseBf16;
  strategy.schedules = {Schedule::one_f_one_b};
  strategy.data_parallel = MakeDeepSpeedBf16;
  strategy.keeps = {{{"gradient of *"},
                     "bf16 `.grad` is zeroed in place between backward passes and stays until the engine's zero_grad, "
                     "behind the step (bf16_optimizer.py)"}};
  return strategy;
}

}  // namespace

std::vector<Strategy> StrategyDeepspeed() {
  std::vector<Strategy> strategies = {
      Zero0(),
      Zero("deepspeed-zero1", "DeepSpeed ZeRO-1: bf16 gradients accumulate whole, reduced at the boundary",
           Sync::When::last, false),
      Zero("deepspeed-zero2", "DeepSpeed ZeRO-2: gradients are reduced and partitioned in every microbatch",
           Sync::When::every, true),
      Bf16(),
      Zero("deepspeed-coalesce", "DeepSpeed ZeRO-2 inside coalesce_grad_reduction: reduced once a step, unsharded",
           Sync::When::last, true),
  };
  strategies.back().defaults.axes.sync.coalesce = true;
  return strategies;
}

}  // namespace tidemark
