// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/jax/microbatched.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"
#include "sim/strategies/xla/train_state.h"

namespace tidemark {
namespace {

Status RefuseAny(const Job& job) {
  const Precision& precision = job.axes.precision;
  const bool short_window =
      job.last_window.microbatches > 0 && job.last_window.policy != LastWindow::Policy::carry_over;
  const Requirement requirements[] = {
      KeepsOptimizer(job.axes.optimizer_step,
                     "arrays in host memory (MaxText: optimizer_memory_host_offload) are not modelled yet"),
      DoesNotClip(job.axes.optimizer_step,
                  "optax.clip_by_global_norm returns new gradients, and what XLA fuses of that with the update is not "
                  "modelled"),
      NoLossInChunks(job.axes.loss),
      {job.layout.pp == 1, "layout.pp", "a jitted step over a data-parallel mesh has no pipeline stages",
       "set layout.pp to 1, or use alpa"},
      {job.layout.cp == 1, "layout.cp", "a jitted step over a data-parallel mesh hands no keys round a ring",
       "set layout.cp to 1, or use megatron"},
      {!short_window, "last_window.policy",
       "the number of microbatches of an update is compiled in: what is left over waits for the next epoch",
       "leave last_window.policy at carry-over"},
      {precision.gradients == precision.params, "precision.gradients",
       "jax.grad returns gradients in the dtype of their parameters",
       "give precision.gradients the dtype of precision.params"},
      {precision.reduce == precision.gradients, "precision.reduce",
       "the partitioner all-reduces gradients where they are made, in their own dtype",
       "give precision.reduce the dtype of precision.gradients"},
      {!precision.master, "precision.master", "optax.apply_updates changes the parameters themselves",
       "set precision.master to none"},
  };
  return Check(requirements);
}

Status RefuseScan(const Job& job) {
  const Axes& axes = job.axes;
  const Requirement requirements[] = {
      {axes.sync.when != Sync::When::custom, "sync.when", "a scan treats all microbatches alike",
       "set sync.when to last or every"},
      {!axes.buffers.stack_gradients || axes.sync.when == Sync::When::every, "sync.when",
       "an all-reduce is moved out of the loop where it feeds a running sum, not where its result is kept",
       "set sync.when to every, or keep a running sum: jax-scan, with buffers.stack_gradients false"},
      {axes.sync.when == Sync::When::every || axes.precision.accumulate == axes.precision.gradients,
       "precision.accumulate", "an all-reduce is moved behind a sum of its own dtype only",
       "give precision.accumulate the dtype of precision.gradients, or set sync.when to every"},
  };
  TIDEMARK_TRY(Check(requirements));
  return RefuseAny(job);
}

/// xla_gpu_all_reduce_combine_threshold_bytes is 30 MiB + 7 in current releases of XLA.
Strategy Jax(std::string name, std::string summary) {
  Strategy strategy;
  strategy.defaults.name = std::move(name);
  strategy.defaults.summary = std::move(summary);
  strategy.defaults.axes.sync.bucket_bytes = Bytes((30 << 20) + 7);
  strategy.defaults.keys = {"sync.bucket_bytes"};
  return strategy;
}

Strategy Scan(std::string name, std::string summary) {
  Strategy strategy = Jax(std::move(name), std::move(summary));
  strategy.defaults.axes.sync.when = Sync::When::last;
  strategy.defaults.axes.loss_scale = LossScale::global_batch;
  strategy.defaults.keys.emplace_back("buffers.donate");
  strategy.refuse = RefuseScan;
  strategy.data_parallel = MakeScan;
  strategy.keeps = {
      {{"summed gradient of *"},
       "the loop's carry: a compiled step's temporaries share one allocation, which goes when the step is over "
       "(BufferAssignment)"},
      KeepsInputs(),
  };
  return strategy;
}

}  // namespace

std::vector<Strategy> StrategyJax() {
  Strategy multisteps =
      Jax("jax-multisteps",
          "optax.MultiSteps under jit: a second tree for the mean gradient, all-reduced in every microbatch");
  multisteps.defaults.axes.sync.when = Sync::When::every;
  multisteps.defaults.axes.loss_scale = LossScale::global_tokens;
  multisteps.defer_hint = "add microbatches up inside one jitted step: strategy jax-scan all-reduces their sum once";
  multisteps.defaults.keys.emplace_back("buffers.mid_updates");
  multisteps.refuse = RefuseAny;
  multisteps.data_parallel = MakeMultiSteps;
  Strategy scan =
      Scan("jax-scan", "jax.lax.scan over microbatches in one jitted step, with a running sum of gradients");
  scan.defaults.keys.emplace_back("sync.when");
  scan.defaults.keys.emplace_back("buffers.stack_gradients");
  Strategy stacked = Scan("jax-scan-stacked",
                          "jax.lax.scan over microbatches that keeps every microbatch's gradients and sums them at the "
                          "end: memory grows with the microbatches");
  stacked.defaults.axes.sync.when = Sync::When::every;
  stacked.defaults.axes.buffers.stack_gradients = true;
  stacked.defer_hint = "keep a running sum of gradients instead: strategy jax-scan all-reduces it once";
  return {multisteps, scan, stacked};
}

}  // namespace tidemark
