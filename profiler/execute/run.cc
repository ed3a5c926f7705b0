// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/run.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "profiler/device/host_memory.h"

namespace tidemark {
namespace {

constexpr Bytes kUnlimited{std::int64_t{1} << 46};

/// Ranks are numbered tensor parallel first, then data parallel.
Result<Communicators> SplitWorld(const Job& job, World& world) {
  const std::int64_t tp = job.layout.tp;
  Communicators groups;
  TIDEMARK_ASSIGN(groups["tp"], world.Split(world.rank() / tp));
  TIDEMARK_ASSIGN(groups["dp"], world.Split(world.rank() % tp));
  return groups;
}

Result<Batches> MakeBatches(const Job& job, const Decoder& decoder, const RunOptions& options) {
  if (options.text.empty()) {
    return Batches::Random(decoder.vocabulary, job.sequence_length, options.seed);
  }
  return Batches::OfText(options.text, decoder.vocabulary, job.sequence_length, options.seed);
}

}  // namespace

Status CheckExecutable(const Job& job, std::span<const RunStep> steps, const RunOptions& options) {
  if (job.layout.pp > 1) {
    return NotExecuted(fmt::format("a pipeline (layout.pp={})", job.layout.pp));
  }
  if (job.layout.cp > 1) {
    return NotExecuted(fmt::format("context parallelism (layout.cp={})", job.layout.cp));
  }
  if (job.mean_sequence_length > 0) {
    return NotExecuted("sequences of different lengths (sequence_length.mean)");
  }
  if (job.axes.loss == Partition::Loss::chunked || job.axes.loss == Partition::Loss::fused) {
    return NotExecuted("losses in chunks (loss)");
  }
  if (job.axes.buffers.gradient_as_bucket_view) {
    return NotExecuted("gradients that are views of a bucket (buffers.gradient_as_bucket_view)");
  }
  TIDEMARK_ASSIGN(const Model model, Model::Of(job, {0, job.layout.tp}));
  if (model.decoder().rope && model.decoder().head_size % 2 != 0) {
    return NotExecuted(fmt::format("the rotation of heads of an odd size ({})", model.decoder().head_size));
  }
  TIDEMARK_TRY(MakeBatches(job, model.decoder(), options));
  const StepProgram* checked = nullptr;
  for (const RunStep& step : steps) {
    if (step.program != checked) {
      TIDEMARK_TRY(DeclareTypes(job, model, step.program->roles.front(), false));
      checked = step.program;
    }
  }
  return Done{};
}

Result<RunOutcome> RunSteps(const Job& job, std::span<const RunStep> steps, const RunOptions& options, World& world) {
  if (job.Ranks() != world.size()) {
    return BadInput(fmt::format("the job has {} ranks, and this run has {}", job.Ranks(), world.size()),
                    "start one process for each rank");
  }
  TIDEMARK_ASSIGN(const Communicators groups, SplitWorld(job, world));
  const TensorParallelPlace place{groups.at("tp")->rank(), groups.at("tp")->size()};
  TIDEMARK_ASSIGN(const Model model, Model::Of(job, place));
  TIDEMARK_ASSIGN(const Batches batches, MakeBatches(job, model.decoder(), options));
  auto device = std::make_unique<HostMemory>(options.capacity.value_or(kUnlimited));
  const HostMemory& host = *device;
  TensorMemory memory(MakeAllocator(job.allocator, std::move(device)));
  Executor executor(job, model, groups, batches, memory,
                    {.seed = options.seed, .exact = options.exact, .keep_gradients = options.keep_gradients});
  RunOutcome run;
  for (const RunStep& step : steps) {
    TIDEMARK_ASSIGN(StepOutcome outcome, executor.Run(step.program->roles.front(), step.kind));
    const double ranks = static_cast<double>(world.size());
    const double sum = world.Sum(outcome.loss.value_or(0));
    if (outcome.loss) {
      outcome.loss = sum / ranks;
    }
    run.ran_out = world.Highest(outcome.out_of_memory ? 1 : 0) > 0;
    run.steps.push_back(std::move(outcome));
    if (run.ran_out) {
      break;
    }
  }
  if (options.keep_gradients) {
    run.gradients = executor.gradients();
  }
  const Allocator& allocator = memory.allocator();
  run.allocator_peak = allocator.allocated_peak();
  run.reserved_peak = allocator.reserved_peak();
  run.mapped_peak = host.mapped_peak();
  run.cache_flushes = allocator.cache_flushes();
  run.trace = std::move(executor.recorder()).Take();
  return run;
}

}  // namespace tidemark
