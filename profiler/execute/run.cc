// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/run.h"

#include <fmt/format.h>

#include <memory>
#include <set>
#include <utility>

#include "base/text.h"
#include "profiler/capture/heap.h"
#include "profiler/capture/outside_view.h"
#include "profiler/device/announced_memory.h"
#include "profiler/device/host_device.h"
#include "sim/program/stages.h"

namespace tidemark {
namespace {

constexpr Bytes kUnlimited{std::int64_t{1} << 40};  // more than a rank gets, and room for it in any address space

/// One, or one for each side of pairs.
Result<std::vector<Batches>> MakeBatches(const Job& job, const Model& model, const RunOptions& options) {
  const HeapScope scope(HeapOwner::data);
  std::vector<std::int64_t> vocabularies = {model.decoder().vocabulary};
  if (model.pair()) {
    vocabularies.push_back(model.pair()->second.vocabulary);
  }
  std::vector<Batches> sides;
  for (const std::int64_t vocabulary : vocabularies) {
    const std::uint64_t seed = options.seed + sides.size();
    if (options.text.empty()) {
      sides.push_back(Batches::Random(vocabulary, job.sequence_length, seed));
    } else {
      TIDEMARK_ASSIGN(Batches text, Batches::OfText(options.text, vocabulary, job.sequence_length, seed));
      sides.push_back(std::move(text));
    }
    if (job.mean_sequence_length > 0) {
      sides.back() = sides.back().Uneven(job.mean_sequence_length);
    }
  }
  return sides;
}

Status DeclareAll(const Job& job, const StepProgram& program) {
  for (const Program& role : program.roles) {
    TIDEMARK_ASSIGN(const Model model, Model::Of(job, {0, job.layout.tp}, 0, StagesOf(role)));
    TIDEMARK_TRY(DeclareTypes(job, model, role, false));
  }
  return Done{};
}

Error AloneWithoutMemory(const OutOfMemory& out) {
  return {
      ErrorCode::machine_cannot, "",
      fmt::format("this rank's device has no {} for '{}' {}: {} of {} are taken", Text(out.requested), out.tensor,
                  out.at.phase.empty() ? kBeforeStep : "in " + out.at.phase, Text(out.reserved), Text(out.capacity)),
      "tidemark predict says what a rank needs, and when"};
}

/// What a device hands out itself needs no announcement: tools know where it lies.
Result<std::unique_ptr<Allocator>> AllocatorOn(Device& device, const AllocatorOptions& kind,
                                               const RunOptions& options) {
  const Bytes capacity = options.capacity.value_or(kUnlimited);
  TIDEMARK_ASSIGN(std::unique_ptr<Allocator> own, device.OwnAllocator(kind, capacity));
  if (own != nullptr) {
    return own;
  }
  std::unique_ptr<DeviceMemory> below = device.MemoryOf(capacity);
  if (options.annotations != nullptr) {
    below = std::make_unique<AnnouncedMemory>(std::move(below), *options.annotations);
  }
  return MakeAllocator(kind, std::move(below));
}

/// The mean over the ranks that have finished a microbatch's loss: all of them, or those of a pipeline's last stage.
std::optional<double> MeanLoss(World& world, const std::optional<double>& own) {
  const double sum = world.Sum(own.value_or(0)), ranks = world.Sum(own ? 1 : 0);
  return ranks > 0 ? std::optional<double>(sum / ranks) : std::nullopt;
}

}  // namespace

Result<Model> ModelOf(const Job& job, const StepProgram& program, std::int64_t rank) {
  return Model::Of(job, TensorParallelPlaceOf(job, rank), ShardOf(job, rank),
                   StagesOf(program.roles[RoleOf(job, rank)]));
}

Status CheckExecutable(const Job& job, std::span<const RunStep> steps, const RunOptions& options) {
  if (job.layout.pp > 1 && options.capacity) {
    return NotExecuted("a pipeline on a device of a given size (--capacity)");
  }
  if (job.layout.cp > 1 && job.mean_sequence_length > 0) {
    return NotExecuted("sequences of different lengths (sequence_length.mean) that ranks share (layout.cp)");
  }
  if (job.mean_sequence_length > 0 && std::holds_alternative<DualEncoder>(job.network.shape)) {
    return NotExecuted("sequences of different lengths (sequence_length.mean) in a dual encoder, which pools them");
  }
  if (job.mean_sequence_length > 0 && job.axes.sync.when == Sync::When::custom &&
      (job.axes.loss_scale == LossScale::global_tokens || job.axes.loss_scale == LossScale::summed_tokens)) {
    return NotExecuted("all tokens of windows of your own (sync.when, loss_scale) of sequences of different lengths");
  }
  if (job.axes.precision.params == DType::fp64) {
    return NotExecuted("a network in fp64 (precision.params), whose statistics would be fp64 as well");
  }
  TIDEMARK_ASSIGN(const Model model, Model::Of(job, {0, job.layout.tp}));  // of all stages
  for (const Decoder* one : {&model.decoder(), model.pair() ? &model.pair()->second : &model.decoder()}) {
    if (one->rope && !one->IsLatent() && one->head_size % 2 != 0) {
      return NotExecuted(fmt::format("the rotation of heads of an odd size ({})", one->head_size));
    }
  }
  TIDEMARK_TRY(MakeBatches(job, model, options));
  const StepProgram* checked = nullptr;
  for (const RunStep& step : steps) {
    if (step.program != checked) {
      TIDEMARK_TRY(DeclareAll(job, *step.program));
      checked = step.program;
    }
  }
  return Done{};
}

Result<RunOutcome> RunSteps(const Job& job, std::span<const RunStep> steps, const RunOptions& options, World& world) {
  if (job.Ranks() != world.size()) {
    return BadInput(fmt::format("the job has {}, and this run has {}", Counted(job.Ranks(), "rank"), world.size()),
                    "start one process for each rank");
  }
  TIDEMARK_ASSIGN(Communicators groups, GroupsOf(job, world));
  TIDEMARK_ASSIGN(const Model model, ModelOf(job, *steps.front().program, world.rank()));
  TIDEMARK_ASSIGN(const std::vector<Batches> batches, MakeBatches(job, model, options));
  HostDevice processor;
  Device& device = options.device == nullptr ? processor : *options.device;
  TIDEMARK_ASSIGN(std::unique_ptr<Allocator> allocator_of_job, AllocatorOn(device, job.allocator, options));
  TensorMemory memory(std::move(allocator_of_job), device);
  memory.AnnounceTo(options.annotations);
  std::unique_ptr<OutsideView> outside = options.watch ? options.watch(memory) : nullptr;
  ExpertChoices chosen;
  if (options.keep_gradients) {
    const HeapScope scope(HeapOwner::verification);
    chosen = ExpertChoices(job);
  }
  Executor executor(job, model, groups, batches, device, memory,
                    {.seed = options.seed,
                     .exact = options.exact,
                     .keep_gradients = options.keep_gradients,
                     .kept_update = options.kept_update,
                     .choices = options.choices,
                     .kept_choices = chosen.empty() ? nullptr : &chosen,
                     .time_work = options.time_work,
                     .capture = options.capture});
  executor.recorder().ReportTo(options.progress);
  executor.recorder().AnnounceTo(options.annotations);
  Trace blank = options.blank;
  blank.clock = Name(executor.clock());
  executor.recorder().Describe(blank);
  executor.recorder().KeepWith(options.keep_trace);
  RunOutcome run;
  run.clock = executor.clock();
  std::set<const StepProgram*> executed;
  for (const RunStep& step : steps) {
    const Program& role = step.program->roles[RoleOf(job, world.rank())];
    const bool is_new = executed.insert(step.program).second;
    Result<StepOutcome> ran = executor.Run(role, step.kind, is_new ? Poison::everything : options.again);
    if (ran && ran->out_of_memory && world.size() > 1 && !options.capacity) {
      ran = AloneWithoutMemory(*ran->out_of_memory);  // the others may have enough, and wait for this one
    }
    if (!ran) {
      executor.recorder().KeepNow();
      groups.clear();  // gives up what is under way between ranks: the device would wait for it
      return ran.error();
    }
    StepOutcome& outcome = *ran;
    if (outcome.out_of_memory && steps.size() == 1) {
      outcome.out_of_memory->at.step = -1;
    }
    outcome.loss = MeanLoss(world, outcome.loss);
    run.ran_out = world.Highest(outcome.out_of_memory ? 1 : 0) > 0;
    run.steps.push_back(std::move(outcome));
    if (run.ran_out) {
      break;
    }
  }
  if (outside) {
    run.budget = outside->Close(world.rank());
    outside.reset();
  }
  if (options.keep_gradients) {  // a copy that is no part of the budget
    run.gradients = executor.gradients();
    run.choices = std::move(chosen);
  }
  const Allocator& allocator = memory.allocator();
  run.allocator_peak = allocator.allocated_peak();
  run.reserved_peak = allocator.reserved_peak();
  run.cache_flushes = allocator.cache_flushes();
  run.mapped_peak = allocator.device().mapped_peak();
  run.notes = device.notes();
  if (model.expert_place().ranks() > 1) {
    run.notes.emplace_back(
        "experts took tokens round-robin, as many each, wherever the router would have sent them; their weights are "
        "the "
        "router's");
  }
  run.trace = std::move(executor.recorder()).Take();
  return run;
}

}  // namespace tidemark
