// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/alpa/gradient_accumulation.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"
#include "sim/strategies/xla/train_state.h"

namespace tidemark {
namespace {

using Executable = Sync::Executable;

Status RefuseClipping(const OptimizerStep& step) {
  const Requirement requirement[] = {DoesNotClip(
      step,
      "optax.clip_by_global_norm returns new gradients, and what XLA fuses of that with the update is not modelled")};
  return Check(requirement);
}

Status RefusePrecision(const Precision& precision) {
  const Requirement requirements[] = {
      {precision.gradients == precision.params, "precision.gradients",
       "jax.grad returns gradients in the dtype of their parameters",
       "give precision.gradients the dtype of precision.params"},
      {precision.reduce == precision.gradients, "precision.reduce", "Alpa all-reduces gradients in their own dtype",
       "give precision.reduce the dtype of precision.gradients"},
      {precision.accumulate == precision.gradients, "precision.accumulate",
       "Alpa's accumulators have the dtype of their gradients: old_grad and new_grad are one array, never cast up",
       "give precision.accumulate the dtype of precision.gradients"},
      {!precision.master, "precision.master", "the optimizer updates the parameters themselves",
       "set precision.master to none"},
  };
  return Check(requirements);
}

/// What holds for every way in which Alpa accumulates.
Status RefuseAny(const Job& job) {
  const Axes& axes = job.axes;
  const bool short_window =
      job.last_window.microbatches > 0 && job.last_window.policy != LastWindow::Policy::carry_over;
  const Requirement requirements[] = {
      NoLossInChunks(axes.loss),
      KeepsOptimizer(job.axes.optimizer_step, "Alpa with arrays in host memory is not modelled"),
      {job.layout.cp == 1, "layout.cp", "Alpa divides arrays over a mesh: none of its ranks hands keys round a ring",
       "set layout.cp to 1, or use megatron"},
      {!short_window, "last_window.policy",
       "a step cuts its batch into num_micro_batches equal microbatches: it cannot run fewer",
       "leave last_window.policy at carry-over"},
  };
  TIDEMARK_TRY(Check(requirements));
  TIDEMARK_TRY(RefuseClipping(axes.optimizer_step));
  return RefusePrecision(axes.precision);
}

Status RefuseShards(const Job& job) {
  const Requirement requirements[] = {
      {!job.axes.shard.optimizer, "shard.optimizer",
       "DataParallel keeps whole optimizer states on every rank; Zero2Parallel shards them", "use alpa-zero2"},
      {job.axes.sync.collective == CollectiveKind::all_reduce, "sync.collective",
       "DataParallel all-reduces gradients; Zero2Parallel reduce-scatters them", "use alpa-zero2"},
  };
  return Check(requirements);
}

Status RefuseWhole(const Job& job) {
  const Requirement requirements[] = {
      {job.axes.shard.optimizer, "shard.optimizer",
       "Zero2Parallel shards optimizer states: that is what its reduce-scatter is for",
       "set shard.optimizer to true, or use alpa, which keeps them whole"},
      {job.axes.sync.collective == CollectiveKind::reduce_scatter, "sync.collective",
       "Zero2Parallel reduce-scatters gradients", "set sync.collective to reduce_scatter, or use alpa"},
  };
  return Check(requirements);
}

/// Style 3, what shipped, and its alternatives.
Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const Executable executable = axes.sync.executable;
  const bool in_program = axes.loop == MicrobatchLoop::program;
  const bool one_executable = executable == Executable::branch || executable == Executable::separate;
  const bool pipeline = job.layout.pp > 1;
  const Requirement requirements[] = {
      {axes.sync.when == Sync::When::last, "sync.when",
       "Alpa clears XLA_SKIP_NCCL_COLLECTIVE_IDS for the last microbatch only: it alone synchronises",
       "set sync.when to last, or use alpa-style1, whose loop outside @parallelize all-reduces every time"},
      {in_program || axes.loop == MicrobatchLoop::runtime, "gradient_flow.loop",
       "a step split into accumulate_grad and apply_grad loops in the runtime, or in the program",
       "set it to runtime or program, or use alpa-style1 (a loop outside) or alpa-style2 (unrolled)"},
      {!in_program || one_executable, "gradient_flow.loop",
       "a loop inside one executable cannot change executables or environment variables between microbatches",
       "set sync.executable to branch or separate, or gradient_flow.loop to runtime"},
      {!in_program || !pipeline, "gradient_flow.loop",
       "a loop inside the program has no pipeline: stages exchange every microbatch through the runtime",
       "set gradient_flow.loop to runtime, or layout.pp to 1"},
      {!pipeline || executable == Executable::skip_channels, "sync.executable",
       "PipeshardParallel skips all-reduces by channel id, unless the batch is the schedule's last backward one",
       "set sync.executable to skip-channels, or layout.pp to 1"},
      {!pipeline || axes.buffers.donate, "buffers.donate",
       "PipeshardParallel donates gradients from stage to stage execution itself", "set buffers.donate to true"},
      {!pipeline || !axes.shard.optimizer, "shard.optimizer",
       "Zero2Parallel is a method of its own beside PipeshardParallel", "set layout.pp to 1, or use alpa"},
      {axes.sync.rewrite || executable != Executable::separate, "sync.rewrite",
       "sync_grad all-reduces the accumulated gradients themselves: there is nothing to rewrite",
       "set sync.rewrite to true, or sync.executable to another"},
      {axes.buffers.donate || executable != Executable::separate, "buffers.donate",
       "a sync_grad that returns new gradients beside its inputs is not modelled",
       "set buffers.donate to true, or sync.executable to another"},
  };
  TIDEMARK_TRY(Check(requirements));
  return RefuseAny(job);
}

Status RefuseDataParallel(const Job& job) {
  TIDEMARK_TRY(RefuseShards(job));
  return Refuse(job);
}

Status RefuseZero2(const Job& job) {
  TIDEMARK_TRY(RefuseWhole(job));
  return Refuse(job);
}

/// Styles 1 and 2 are compiled by ShardParallel only.
Status RefuseStyle(const Job& job) {
  const Requirement requirements[] = {
      {job.layout.pp == 1, "layout.pp",
       "only a step that Alpa itself splits into accumulate_grad and apply_grad can become pipeline stages",
       "set layout.pp to 1, or use alpa"},
  };
  TIDEMARK_TRY(Check(requirements));
  TIDEMARK_TRY(RefuseShards(job));
  return RefuseAny(job);
}

/// tensorflow/compiler/xla/service/spmd/grad_acc_rewrite.h of Alpa's XLA: skipping is right only together with this
/// pass.
std::optional<WrongNumbers> Wrong(const Job& job) {
  if (job.axes.sync.rewrite || job.layout.GradientRanks() == 1 || job.Microbatches() == 1) {
    return std::nullopt;
  }
  return WrongNumbers{
      "skip-without-rewrite",
      "without rewrite_for_grad_acc the all-reduce stands on each microbatch's own gradient: skipping it leaves the "
      "sum of the earlier local gradients plus the all-reduced last one, and replicas drift apart",
      "set sync.rewrite to true"};
}

/// AutoShardingOption's defaults: all_reduce_threshold 2^60; combiner::use_continuous_buffer is always on.
Strategy Alpa(std::string name, std::string summary) {
  Strategy strategy;
  strategy.defaults.name = std::move(name);
  strategy.defaults.summary = std::move(summary);
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = Sync::When::last;
  axes.sync.bucket_bytes = Bytes(std::int64_t{1} << 60);
  axes.loss_scale = LossScale::global_batch;
  axes.buffers.deallocate_pipeline_outputs = true;  // runtime_emitter.py, _compile_free: behind the last use
  strategy.defaults.keys = {"sync.bucket_bytes", "buffers.contiguous_gradients", "buffers.donate"};
  strategy.refuse = RefuseStyle;
  strategy.schedules = {Schedule::gpipe, Schedule::one_f_one_b};
  strategy.data_parallel = MakeAlpa;
  strategy.keeps = {
      {{"accumulated gradient of *"},
       "an argument of apply_grad that is not donated: the runtime deletes it when the executable is over"},
      KeepsInputs(),
  };
  return strategy;
}

Strategy Style3(std::string name, std::string summary) {
  Strategy strategy = Alpa(std::move(name), std::move(summary));
  for (const char* key : {"sync.executable", "sync.rewrite", "gradient_flow.loop"}) {
    strategy.defaults.keys.emplace_back(key);
  }
  strategy.refuse = RefuseDataParallel;
  strategy.wrong = Wrong;
  return strategy;
}

}  // namespace

std::vector<Strategy> StrategyAlpa() {
  Strategy zero2 = Style3("alpa-zero2",
                          "Alpa's Zero2Parallel: whole gradients accumulated on each rank, one reduce-scatter at the "
                          "end, sharded optimizer states");
  zero2.defaults.axes.sync.collective = CollectiveKind::reduce_scatter;
  zero2.defaults.axes.shard.optimizer = true;
  zero2.refuse = RefuseZero2;
  Strategy style1 =
      Alpa("alpa-style1", "Alpa with the loop outside @parallelize: each microbatch returns its gradients all-reduced");
  style1.defaults.axes.sync.when = Sync::When::every;
  style1.defaults.axes.loop = MicrobatchLoop::outside;
  style1.defer_hint = "let Alpa split the step: strategy alpa all-reduces the sum in the last microbatch";
  Strategy style2 = Alpa("alpa-style2",
                         "Alpa with the loop inside the jitted function, unrolled: one program that grows with the "
                         "microbatches, one all-reduce");
  style2.defaults.axes.loop = MicrobatchLoop::unrolled;
  return {
      Style3("alpa",
             "Alpa: accumulate_grad and apply_grad, gradients donated from microbatch to microbatch, the all-reduce "
             "skipped in all of them but the last"),
      style1,
      style2,
      zero2,
  };
}

}  // namespace tidemark
