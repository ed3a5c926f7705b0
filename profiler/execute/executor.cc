// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/pointwise.h"
#include "profiler/capture/annotations.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/joint.h"
#include "profiler/execute/loss_chunk.h"
#include "sim/program/layers.h"
#include "sim/program/stages.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

double Factor(Rational scale) {
  return static_cast<double>(scale.numerator()) / static_cast<double>(scale.denominator());
}

}  // namespace

Executor::Executor(const Job& job, const Model& model, const Communicators& groups, std::span<const Batches> batches,
                   Device& device, TensorMemory& memory, const ExecutorOptions& options)
    : job_(job),
      model_(model),
      groups_(groups),
      batches_(batches),
      device_(device),
      memory_(memory),
      options_(options),
      clock_(ClockOf(device, options)),
      loss_sum_(device.RoomFor(SizeOf(DType::fp64))) {}

/// What runs again has its code on the device.
Result<StepOutcome> Executor::Run(const Program& program, std::string_view kind, Poison poison) {
  device_.CountCode(poison == Poison::everything);
  Result<StepOutcome> outcome = RunStep(program, kind, poison);
  device_.CountCode(false);
  return outcome;
}

Result<StepOutcome> Executor::RunStep(const Program& program, std::string_view kind, Poison poison) {
  if (program_ != &program) {
    const HeapScope scope(HeapOwner::executor);
    TIDEMARK_ASSIGN(types_, DeclareTypes(job_, model_, program, options_.exact));
    normed_ = NormedTensors(model_, program);
    TIDEMARK_TRY(Connect(program));
  }
  recorder_.BeginStep(program, kind);
  outcome_ = {};
  next_allocation_ = 0;
  recorded_.assign(program.events.size(), {});
  pending_.clear();
  losses_ = 0;
  MakeQueues(program);
  TIDEMARK_TRY(TakeOver(program));
  if (step_ == 0) {
    recorder_.StartClock();
  }
  device_.Synchronize();
  memory_.Fill(poison);
  poison_ = poison;
  if (poison == Poison::nothing && options_.capture != nullptr) {
    options_.capture->StopAskingForSources();
  }
  step_mark_ = device_.MarkIn(0);
  step_start_ = recorder_.Now();
  std::optional<Error> error;
  ForEachLeaf(program, [&](std::size_t at, Loops loops) {
    error = recorder_.Interruption();
    if (error || outcome_.out_of_memory) {
      return false;
    }
    const Status done = std::visit([&](const auto& leaf) { return Do(leaf, loops); }, program.nodes[at]);
    if (!done) {
      error = done.error();
    }
    return done.ok();
  });
  if (error) {
    return *error;
  }
  TIDEMARK_TRY(FinishAll());
  recorder_.EndStep();
  outcome_.time = recorder_.Now() - step_start_;
  TakeTimes();
  if (losses_ > 0) {
    double sum = 0;
    device_.Read(0, loss_sum(), &sum);
    outcome_.loss = sum / static_cast<double>(losses_);
  }
  ++step_;
  return outcome_;
}

std::pair<std::int64_t, std::int64_t> Executor::IndicesOf(const BufferRef& ref, Loops loops) const {
  return {Resolve(ref.index[0], loops), Resolve(ref.index[1], loops)};
}

std::size_t Executor::SlotOf(const BufferRef& ref, Loops loops) const {
  return first_slot_[ref.buffer.index] + static_cast<std::size_t>(MemberOf(BufferOf(ref), ref, loops));
}

std::size_t Executor::MemoryOf(const BufferRef& ref, Loops loops) const {
  const Buffer& buffer = BufferOf(ref);
  return buffer.is_view() ? first_slot_[buffer.MemoryOf(MemberOf(buffer, ref, loops)).of.index] : SlotOf(ref, loops);
}

void* Executor::DataAt(const BufferRef& ref, Loops loops) const {
  const Buffer& buffer = BufferOf(ref);
  void* const data = held_[MemoryOf(ref, loops)].piece.data;
  if (buffer.slices.empty() || data == nullptr) {
    return data;
  }
  const std::int64_t first = buffer.MemoryOf(MemberOf(buffer, ref, loops)).first;
  return static_cast<std::byte*>(data) + (SizeOf(Stored(buffer.dtype, options_.exact)) * first).count();
}

std::vector<Operand> Executor::OperandsAt(std::span<const BufferRef> refs, Loops loops) {
  std::vector<Operand> operands;
  operands.reserve(refs.size());
  for (const BufferRef& ref : refs) {
    const Held& held = held_[SlotOf(ref, loops)];
    operands.push_back(
        {{held.type, DataAt(ref, loops)}, &BufferOf(ref), Resolve(ref.index[0], loops), ref, held.packed, &contents_});
  }
  return operands;
}

Status Executor::Do(const Alloc& leaf, Loops loops) {
  const auto [index0, index1] = IndicesOf(leaf.buffer, loops);
  return Allocate(BufferOf(leaf.buffer), SlotOf(leaf.buffer, loops), index0, index1,
                  types_.allocations[next_allocation_++]);
}

Status Executor::Do(const Free& leaf, Loops loops) {
  const Buffer& buffer = BufferOf(leaf.buffer);
  const std::size_t slot = SlotOf(leaf.buffer, loops);
  TIDEMARK_TRY(FinishStream(buffer.stream));  // it may still use it
  std::vector<Device::Mark> uses;
  if (leaf.recorded) {
    for (const StreamId user : held_[slot].users) {
      TIDEMARK_TRY(FinishStream(user));
      uses.push_back(device_.MarkIn(user.index));
    }
  }
  if (!uses.empty()) {
    uses.push_back(device_.MarkIn(buffer.stream.index));
  }
  const auto [index0, index1] = IndicesOf(leaf.buffer, loops);
  Release(buffer, slot, index0, index1, std::move(uses));
  return Done{};
}

OperationContext Executor::ContextOf(const Compute& leaf) {
  OperationContext context{.job = job_,
                           .model = model_,
                           .normed = normed_,
                           .name = WithoutKept(WithoutStage(program_->names[leaf.name.index])),
                           .op = leaf.op,
                           .reads = {},
                           .writes = {}};
  context.scale = Factor(leaf.scale);
  context.loss_scale = loss_scale_;
  context.renamed = &renamed_;
  context.rooms = &rooms_;
  context.device = &device_;
  context.stream = leaf.stream.index;
  context.exact = options_.exact;
  context.own_part = leaf.own_part;
  context.update = ThisUpdate();
  context.first_sample = FirstSample(microbatch_);
  context.share = ShareOfSequences();
  context.choices = step_ == 0 ? options_.choices : nullptr;
  context.expert_counts = &expert_counts_;
  context.kept_choices = step_ == 0 ? options_.kept_choices : nullptr;
  return context;
}

Status Executor::Do(const Compute& leaf, Loops loops) {
  const AnnotatedRange range = recorder_.Operation(program_->names[leaf.name.index]);
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const std::vector<Operand> reads = OperandsAt(leaf.reads, loops), writes = OperandsAt(leaf.writes, loops);
  UseOn(leaf.stream, leaf.reads, loops);
  UseOn(leaf.stream, leaf.writes, loops);
  OperationContext context = ContextOf(leaf);
  context.reads = reads;
  context.writes = writes;
  context.block = BlockOf(*program_, leaf, model_, loops);
  context.turn = TurnOf(*program_, loops);
  context.seed = SeedOf(context.name, context.block);
  if (std::holds_alternative<CrossEntropy>(leaf.op) && std::get<CrossEntropy>(leaf.op).backward &&
      !(leaf.scale == Rational(1))) {
    loss_scale_ = context.scale;
  }
  if (std::holds_alternative<CrossEntropy>(leaf.op) && job_.mean_sequence_length > 0) {
    if (labels_of_ != std::pair(step_, microbatch_)) {
      labels_ = CountLabels();
      labels_.tensor = PutLabels(leaf.stream);
      labels_of_ = {step_, microbatch_};
    }
    context.labels = &labels_;
  }
  TIDEMARK_ASSIGN(const Operation operation, Bind(context));
  std::vector<kernels::Tensor> outputs;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    held_[SlotOf(leaf.writes[i], loops)].type = operation.outputs[i];
    outputs.push_back({operation.outputs[i], writes[i].tensor.data});
  }
  const Started started = StartOn(leaf.stream, program_->names[leaf.name.index]);
  {
    const HeapScope scope(HeapOwner::workspace);
    device_.Give(leaf.stream.index, [run = operation.run, outputs](const Queue& queue) { run(outputs, queue); });
  }
  if (operation.packed) {
    held_[SlotOf(leaf.writes.front(), loops)].packed = operation.packed;
  }
  EndOn(leaf.stream, program_->names[leaf.name.index], started);
  NoteLoss(context, outputs, leaf.stream);
  Note(leaf, reads, writes);
  return Done{};
}

/// A microbatch's loss is the sum of its chunks'. It stays on the device: nobody waits for it.
void Executor::NoteLoss(const OperationContext& context, std::span<const kernels::Tensor> outputs, StreamId stream) {
  const LossChunk chunk = ChunkOf(context);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (context.writes[i].buffer->name.ends_with(std::string(".loss").append(chunk.suffix))) {
      const bool is_first = losses_ == 0 && chunk.first == 0;
      device_.Give(stream.index, [is_first, loss = outputs[i], sum = loss_sum()](const Queue& queue) {
        is_first ? on::Copy(queue, loss, sum) : on::Accumulate(queue, loss, sum);
      });
      losses_ += chunk.first == 0 ? 1 : 0;
    }
  }
}

Status Executor::Finish(Pending& pending) {
  if (pending.done) {
    return Done{};
  }
  recorder_.Wait(true);
  for (const Communicator::Ticket ticket : pending.tickets) {
    TIDEMARK_TRY(pending.group->Finish(ticket));
  }
  recorder_.Wait(false);
  for (const std::function<void()>& then : std::exchange(pending.then, {})) {  // what it has lent goes with it
    then();
  }
  pending.done = true;
  EndOn(pending.stream, pending.name, pending.started);
  return Done{};
}

/// Everything that is under way on a stream, or anywhere (no stream).
Status Executor::FinishStream(StreamId stream) {
  for (Pending& pending : pending_) {
    if (!stream.valid() || pending.stream == stream) {
      TIDEMARK_TRY(Finish(pending));
    }
  }
  if (std::all_of(pending_.begin(), pending_.end(), [](const Pending& one) { return one.done; })) {
    pending_.clear();
    for (Recorded& recorded : recorded_) {
      if (!recorded.under_way.empty() && recorded.is_marked) {  // what the host has added behind them is meant as well
        recorded.mark = device_.MarkIn(recorded.stream.index);
      }
      recorded.under_way.clear();
    }
  }
  return Done{};
}

Status Executor::Do(const Record& leaf, Loops) {
  Recorded& recorded = recorded_[leaf.event.index];
  recorded = {};
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (pending_[i].stream == leaf.stream && !pending_[i].done) {
      recorded.under_way.push_back(i);
    }
  }
  if (!device_.is_synchronous()) {
    recorded.mark = device_.MarkIn(leaf.stream.index);
    recorded.stream = leaf.stream;
    recorded.is_marked = true;
  }
  return Done{};
}

/// What the host had to finish first is behind the event's mark.
Status Executor::Do(const Wait& leaf, Loops) {
  const Recorded& recorded = recorded_[leaf.event.index];
  for (const std::size_t i : recorded.under_way) {
    TIDEMARK_TRY(Finish(pending_[i]));
    if (!device_.is_synchronous()) {
      device_.WaitFor(leaf.stream.index, device_.MarkIn(pending_[i].stream.index));
    }
  }
  if (recorded.is_marked) {
    device_.WaitFor(leaf.stream.index, recorded.mark);
  }
  return Done{};
}

Status Executor::Do(const HostSync& leaf, Loops) {
  TIDEMARK_TRY(FinishStream(leaf.stream));
  leaf.stream.valid() ? device_.Finish(leaf.stream.index) : device_.Synchronize();
  return Done{};
}

Status Executor::Do(const Scale& leaf, Loops loops) {
  const AnnotatedRange range = recorder_.Operation(program_->names[leaf.name.index]);
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const Started started = StartOn(leaf.stream, program_->names[leaf.name.index]);
  UseOn(leaf.stream, std::span(&leaf.buffer, 1), loops);
  const kernels::Tensor tensor{held_[SlotOf(leaf.buffer, loops)].type, DataAt(leaf.buffer, loops)};
  device_.Give(leaf.stream.index,
               [factor = Factor(leaf.factor), tensor](const Queue& queue) { on::Scale(queue, factor, tensor); });
  EndOn(leaf.stream, program_->names[leaf.name.index], started);
  return Done{};
}

Status Executor::Do(const Begin& leaf, Loops loops) {
  const std::int64_t microbatch = Resolve(leaf.microbatch, loops);
  recorder_.Begin(leaf.phase, microbatch, leaf.side);
  side_ = leaf.side;
  if (microbatch >= 0) {
    microbatch_ = microbatch;
  }
  if (leaf.phase == Phase::backward) {
    loss_scale_ = 1;
  }
  return Done{};
}

Status Executor::Do(const End&, Loops) {
  recorder_.End();
  return Done{};
}

Status Executor::Do(const Repeat&, Loops) { return Done{}; }

}  // namespace tidemark
