// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/strategies/colossalai/chunk_search.h"
#include "sim/strategies/colossalai/gemini.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

Status RefusePrecision(const Precision& precision) {
  const bool half = precision.params == DType::bf16 || precision.params == DType::fp16;
  const Requirement requirements[] = {
      {half, "precision.params", "GeminiPlugin takes fp16 and bf16 only (SUPPORTED_PRECISION)",
       "set precision.params to bf16 or fp16"},
      {precision.gradients == precision.params, "precision.gradients",
       "a gradient chunk has the dtype of its parameter chunk",
       "give precision.gradients the dtype of precision.params"},
      {precision.reduce == precision.params, "precision.reduce",
       "a gradient chunk has the dtype of its parameter chunk, also on the wire",
       "give precision.reduce the dtype of precision.params"},
      {precision.accumulate == precision.params, "precision.accumulate",
       "Gemini accumulates in the gradient chunk itself, which has the dtype of its parameter chunk",
       "give precision.accumulate the dtype of precision.params"},
      {!precision.master || *precision.master == DType::fp32, "precision.master",
       "Gemini's master weights are fp32 chunks (master_weights=True)",
       "set precision.master to fp32, or to none for master_weights=False"},
  };
  return Check(requirements);
}

/// What GeminiPlugin, GeminiOptimizer and Chunk refuse.
Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const bool drops = job.last_window.microbatches > 0 && job.last_window.policy == LastWindow::Policy::drop;
  const Requirement requirements[] = {
      KeepsOptimizer(job.axes.optimizer_step, "offload_optim_frac of GeminiPlugin is not modelled yet"),
      DoesNotClip(axes.optimizer_step,
                  "GeminiOptimizer takes the norm over chunks and divides inside HybridAdam's kernel, which is not "
                  "modelled"),
      {axes.sync.when == Sync::When::every, "sync.when",
       "The plugin GeminiPlugin does not support no_sync. (its no_sync raises NotImplementedError)",
       "leave sync.when at every: with enable_gradient_accumulation each microbatch is reduced and added up in shards"},
      {job.layout.pp == 1, "layout.pp",
       "Gemini is not compatible with pipeline: GeminiPlugin lays ranks out as data and tensor parallel only",
       "set layout.pp to 1"},
      {job.optimizer == OptimizerKind::adamw, "optimizer",
       "GeminiOptimizer: You should use an optimizer in the available list: FusedAdam, CPUAdam, HybridAdam",
       "set optimizer to adamw"},
      {axes.shard.chunk_elements % job.layout.GradientRanks() == 0, "shard.chunk_elements",
       "the chunk size should be divisible by the dp degree",
       "make shard.chunk_elements a multiple of layout.dp * layout.cp"},
      {axes.shard.min_chunk_elements > 0, "shard.min_chunk_elements", "the search needs a smallest chunk",
       "set shard.min_chunk_elements to 1 or more"},
      {!drops, "last_window.policy",
       "zero_grad does not reach Gemini's gradient chunks: only step() ends a window, so left-over gradients would "
       "stay",
       "set last_window.policy to carry-over, rescaled or not-rescaled"},
  };
  TIDEMARK_TRY(Check(requirements));
  return RefusePrecision(axes.precision);
}

/// rearrange_accumulated_grad_chunk multiplies by N for the division that follows the reduction to cancel it. That is
/// right for a shard, which one rank contributes. A gathered chunk is contributed by all N: the sum is N times N times
/// what was accumulated, and the division leaves a factor N for every further microbatch.
std::optional<WrongNumbers> Wrong(const Job& job) {
  if (job.layout.GradientRanks() == 1 || job.Microbatches() == 1) {
    return std::nullopt;
  }
  const Result<std::vector<Stage>> stages = CutIntoStages(job);
  if (!stages || !KeepsGathered(stages->front(), job.axes.shard)) {
    return std::nullopt;
  }
  return WrongNumbers{
      "gathered-chunk-multiplied",
      "all parameters fit one chunk that Gemini keeps gathered, and accumulating in it multiplies what was there by "
      "the number of ranks at each further microbatch",
      "lower shard.min_chunk_elements, so that chunks are sharded"};
}

/// What is there already is multiplied by N within the chunk, for the division behind the reduction to cancel it.
RunningSum SumInChunk(const Job& job) {
  return {job.axes.precision.accumulate, "precision.accumulate", job.layout.GradientRanks()};
}

}  // namespace

/// colossalai.booster.plugin.GeminiPlugin(enable_gradient_accumulation=True) with its defaults otherwise: static
/// placement, shard_param_frac 1, no offload, no prefetch, enable_async_reduce, master weights; bf16 for its fp16.
/// Without the flag a reduced gradient overwrites its parameter chunk, which leaves nothing to accumulate into.
std::vector<Strategy> StrategyColossalaiGemini() {
  Strategy strategy;
  strategy.defaults.name = "colossalai-gemini";
  strategy.defaults.summary =
      "Colossal-AI's GeminiPlugin(enable_gradient_accumulation=True): ZeRO-3 by chunks, reduced every microbatch";
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = Sync::When::every;
  axes.sync.collective = CollectiveKind::reduce_scatter;
  axes.shard.params = axes.shard.gradients = axes.shard.optimizer = true;
  axes.precision.master = DType::fp32;
  axes.precision.optimizer = DType::fp32;
  strategy.defaults.keys = {"sync.overlap", "shard.chunk_elements", "shard.min_chunk_elements"};
  strategy.refuse = Refuse;
  strategy.wrong = Wrong;
  strategy.running_sum = SumInChunk;
  strategy.data_parallel = MakeGemini;
  strategy.ranks_differ = true;
  strategy.keeps = {
      {{"gradient of *"},
       "an argument of the gradient's hook, which reduces a chunk that has become full before it returns "
       "(gemini_ddp.py, grad_handle)"},
      {{"shard of gradient chunk *"},
       "cloned and multiplied by N before the chunk lets go of it (chunk/manager.py, "
       "rearrange_accumulated_grad_chunk)"},
  };
  return {strategy};
}

}  // namespace tidemark
