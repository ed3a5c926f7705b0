// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/pointwise.h"
#include "profiler/execute/counter.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

double Factor(Rational scale) {
  return static_cast<double>(scale.numerator()) / static_cast<double>(scale.denominator());
}

/// One number of a tensor.
double ValueOf(const kernels::ConstTensor& tensor) {
  double value = 0;
  kernels::Copy(tensor, {{DType::fp64, 1}, &value});
  return value;
}

}  // namespace

Executor::Executor(const Job& job, const Model& model, const Communicators& groups, const Batches& batches,
                   TensorMemory& memory, const ExecutorOptions& options)
    : job_(job), model_(model), groups_(groups), batches_(batches), memory_(memory), options_(options) {}

Result<StepOutcome> Executor::Run(const Program& program, std::string_view kind) {
  if (program_ != &program) {
    TIDEMARK_ASSIGN(types_, DeclareTypes(job_, model_, program, options_.exact));
  }
  recorder_.BeginStep(program, kind);
  outcome_ = {};
  next_allocation_ = 0;
  recorded_.assign(program.events.size(), {});
  pending_.clear();
  loss_sum_ = 0;
  losses_ = 0;
  TIDEMARK_TRY(TakeOver(program));
  if (step_ == 0) {
    recorder_.StartClock();
  }
  const Nanos start = recorder_.Now();
  std::optional<Error> error;
  ForEachLeaf(program, [&](std::size_t at, Loops loops) {
    if (outcome_.out_of_memory) {
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
  for (Pending& pending : pending_) {
    TIDEMARK_TRY(Finish(pending));
  }
  recorder_.EndStep();
  outcome_.time = recorder_.Now() - start;
  if (losses_ > 0) {
    outcome_.loss = loss_sum_ / static_cast<double>(losses_);
  }
  ++step_;
  return outcome_;
}

std::pair<std::int64_t, std::int64_t> Executor::IndicesOf(const BufferRef& ref, Loops loops) const {
  return {Resolve(ref.index[0], loops), Resolve(ref.index[1], loops)};
}

std::size_t Executor::SlotOf(const BufferRef& ref, Loops loops) const {
  const auto [index0, index1] = IndicesOf(ref, loops);
  return first_slot_[ref.buffer.index] + static_cast<std::size_t>(index0 * BufferOf(ref).extents[1] + index1);
}

void* Executor::DataAt(const BufferRef& ref, Loops loops) const {
  const Buffer& buffer = BufferOf(ref);
  return held_[buffer.is_view() ? first_slot_[buffer.base.index] : SlotOf(ref, loops)].piece.data;
}

std::vector<Operand> Executor::OperandsAt(std::span<const BufferRef> refs, Loops loops) const {
  std::vector<Operand> operands;
  operands.reserve(refs.size());
  for (const BufferRef& ref : refs) {
    operands.push_back(
        {{held_[SlotOf(ref, loops)].type, DataAt(ref, loops)}, &BufferOf(ref), Resolve(ref.index[0], loops), ref});
  }
  return operands;
}

Status Executor::Do(const Alloc& leaf, Loops loops) {
  const auto [index0, index1] = IndicesOf(leaf.buffer, loops);
  return Allocate(BufferOf(leaf.buffer), SlotOf(leaf.buffer, loops), index0, index1,
                  types_.allocations[next_allocation_++]);
}

Status Executor::Do(const Free& leaf, Loops loops) {
  TIDEMARK_TRY(FinishStream(leaf.recorded ? StreamId{} : BufferOf(leaf.buffer).stream));  // somebody may still use it
  const auto [index0, index1] = IndicesOf(leaf.buffer, loops);
  Release(BufferOf(leaf.buffer), SlotOf(leaf.buffer, loops), index0, index1);
  return Done{};
}

/// The same for an operation of the same block, whichever pass it is in: "layer.wo_dropout.forward" and its backward.
std::uint64_t Executor::SeedOf(std::string_view name, std::int64_t block) const {
  const std::string_view operation = name.substr(0, name.rfind('.'));
  return RandomBits(options_.seed ^ HashOf(operation) ^ RandomBits(static_cast<std::uint64_t>(block)) ^
                    RandomBits(RandomBits(static_cast<std::uint64_t>(step_))));
}

OperationContext Executor::ContextOf(const Compute& leaf) const {
  OperationContext context{
      .job = job_, .model = model_, .name = program_->names[leaf.name.index], .op = leaf.op, .reads = {}, .writes = {}};
  context.scale = Factor(leaf.scale);
  context.loss_scale = loss_scale_;
  context.exact = options_.exact;
  context.update = step_ + 1;
  context.first_sample = FirstSample(microbatch_);
  return context;
}

Status Executor::Do(const Compute& leaf, Loops loops) {
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const std::vector<Operand> reads = OperandsAt(leaf.reads, loops), writes = OperandsAt(leaf.writes, loops);
  OperationContext context = ContextOf(leaf);
  context.reads = reads;
  context.writes = writes;
  context.seed = SeedOf(context.name, writes.empty() ? 0 : Resolve(leaf.writes.front().index[1], loops));
  if (std::holds_alternative<CrossEntropy>(leaf.op) && std::get<CrossEntropy>(leaf.op).backward &&
      !(leaf.scale == Rational(1))) {
    loss_scale_ = context.scale;
  }
  TIDEMARK_ASSIGN(const Operation operation, Bind(context));
  std::vector<kernels::Tensor> outputs;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    held_[SlotOf(leaf.writes[i], loops)].type = operation.outputs[i];
    outputs.push_back({operation.outputs[i], writes[i].tensor.data});
  }
  const Nanos start = recorder_.Now();
  operation.run(outputs);
  const Stream& stream = program_->streams[leaf.stream.index];
  recorder_.Busy(stream.name, Name(stream.kind), std::string(context.name), start, recorder_.Now());
  Note(leaf, reads, outputs);
  return Done{};
}

void Executor::Note(const Compute& leaf, std::span<const Operand> reads, std::span<const kernels::Tensor> writes) {
  if (std::holds_alternative<CrossEntropy>(leaf.op)) {
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (BufferOf(leaf.writes[i]).name.ends_with(".loss")) {
        loss_sum_ += ValueOf(writes[i]);
        ++losses_;
      }
    }
  }
  const bool updates = std::holds_alternative<OptimizerUpdate>(leaf.op);
  if (options_.keep_gradients && step_ == 0 && (updates || leaf.work == Work::optimizer)) {
    KeepGradients(reads);
  }
  if (updates) {
    auto& changed = outcome_.parameters_changed_at;
    if (changed.empty() || changed.back() != microbatch_) {
      changed.push_back(microbatch_);
    }
  }
}

void Executor::KeepGradients(std::span<const Operand> reads) {
  for (const Operand& read : reads) {
    const bool gradient = read.buffer->category == Category::gradient || read.buffer->category == Category::accumulator;
    const auto contents = gradient ? ContentsOf(model_, *read.buffer, read.index) : std::nullopt;
    for (std::size_t i = 0; contents && i < contents->size(); ++i) {
      const Stretch& stretch = (*contents)[i];
      std::vector<double>& values = gradients_[{stretch.weight.name, stretch.block}];
      if (!values.empty()) {
        continue;  // as it was before it was clipped
      }
      values.resize(static_cast<std::size_t>(stretch.elements));
      kernels::Copy(kernels::Slice(static_cast<kernels::ConstTensor>(read.tensor), stretch.offset, stretch.elements),
                    {{DType::fp64, stretch.elements}, values.data()});
    }
  }
}

Status Executor::Do(const Collective& leaf, Loops loops) {
  const auto group = groups_.find(program_->groups[leaf.group.index].name);
  if (group == groups_.end() || group->second->size() != program_->groups[leaf.group.index].size) {
    return NotExecuted(fmt::format("collectives over the group '{}'", program_->groups[leaf.group.index].name));
  }
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const std::vector<Operand> reads = OperandsAt(leaf.reads, loops), writes = OperandsAt(leaf.writes, loops);
  for (std::size_t i = 0; i < writes.size(); ++i) {
    TIDEMARK_TRY(BeginExchange(leaf, *group->second, reads[i], writes[i]));
    held_[SlotOf(leaf.writes[i], loops)].type = {reads[i].tensor.type.dtype, BufferOf(leaf.writes[i]).elements};
  }
  return Done{};
}

Status Executor::BeginExchange(const Collective& leaf, Communicator& group, const Operand& from, const Operand& to) {
  const std::int64_t ranks = group.size();
  Exchange exchange{leaf.kind,        leaf.reduction, from.tensor.type.dtype, from.tensor.type.elements,
                    from.tensor.data, to.tensor.data};
  std::int64_t written = exchange.elements;
  if (leaf.kind == CollectiveKind::all_gather) {
    const bool in_place = from.tensor.data == to.tensor.data;
    exchange.elements *= in_place ? 1 : ranks;
    written = exchange.elements;
    if (in_place) {
      const Bytes before = SizeOf(exchange.dtype) * (exchange.elements / ranks * group.rank());
      exchange.from = static_cast<const char*>(exchange.to) + before.count();
    }
  } else if (leaf.kind == CollectiveKind::reduce_scatter) {
    written /= ranks;
  }
  const double average = leaf.reduction == Reduction::avg ? 1.0 / static_cast<double>(ranks) : 1.0;
  const double factor = average * Factor(leaf.scale);
  const kernels::Tensor result{{exchange.dtype, written}, to.tensor.data};
  const Nanos start = recorder_.Now();
  TIDEMARK_ASSIGN(const Communicator::Ticket ticket, group.Begin(exchange));
  pending_.push_back({&group, ticket, leaf.stream,
                      [=] {
                        if (factor != 1.0) {
                          kernels::Scale(factor, result);
                        }
                      },
                      program_->names[leaf.name.index], start});
  return Done{};
}

Status Executor::Finish(Pending& pending) {
  if (pending.done) {
    return Done{};
  }
  TIDEMARK_TRY(pending.group->Finish(pending.ticket));
  pending.then();
  pending.done = true;
  const Stream& stream = program_->streams[pending.stream.index];
  recorder_.Busy(stream.name, Name(stream.kind), pending.name, pending.start, recorder_.Now());
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
    for (auto& under_way : recorded_) {
      under_way.clear();
    }
  }
  return Done{};
}

Status Executor::Do(const Record& leaf, Loops) {
  std::vector<std::size_t>& under_way = recorded_[leaf.event.index];
  under_way.clear();
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (pending_[i].stream == leaf.stream && !pending_[i].done) {
      under_way.push_back(i);
    }
  }
  return Done{};
}

Status Executor::Do(const Wait& leaf, Loops) {
  for (const std::size_t i : recorded_[leaf.event.index]) {
    TIDEMARK_TRY(Finish(pending_[i]));
  }
  return Done{};
}

Status Executor::Do(const HostSync& leaf, Loops) { return FinishStream(leaf.stream); }

Status Executor::Do(const Copy& leaf, Loops loops) {
  const Nanos start = recorder_.Now();
  const std::string& name = program_->names[leaf.name.index];
  for (const BufferRef& ref : leaf.writes) {
    const kernels::TensorType type{DType::int64, job_.micro_batch_size * job_.sequence_length};
    held_[SlotOf(ref, loops)].type = type;
    auto* ids = static_cast<std::int64_t*>(DataAt(ref, loops));
    for (std::int64_t i = 0; i < job_.micro_batch_size; ++i) {
      const std::span<std::int64_t> row(ids + i * job_.sequence_length, static_cast<std::size_t>(job_.sequence_length));
      const std::int64_t sample = FirstSample(microbatch_) + i;
      name.ends_with("labels") ? batches_.Labels(sample, row) : batches_.Ids(sample, row);
    }
  }
  const Stream& stream = program_->streams[leaf.stream.index];
  recorder_.Busy(stream.name, Name(stream.kind), name, start, recorder_.Now());
  return Done{};
}

std::int64_t Executor::FirstSample(std::int64_t microbatch) const {
  const auto dp = groups_.find("dp");
  const std::int64_t ranks = dp == groups_.end() ? 1 : dp->second->size();
  const std::int64_t rank = dp == groups_.end() ? 0 : dp->second->rank();
  return ((step_ * job_.Microbatches() + std::max<std::int64_t>(microbatch, 0)) * ranks + rank) * job_.micro_batch_size;
}

Status Executor::Do(const Scale& leaf, Loops loops) {
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const Nanos start = recorder_.Now();
  kernels::Scale(Factor(leaf.factor), {held_[SlotOf(leaf.buffer, loops)].type, DataAt(leaf.buffer, loops)});
  const Stream& stream = program_->streams[leaf.stream.index];
  recorder_.Busy(stream.name, Name(stream.kind), program_->names[leaf.name.index], start, recorder_.Now());
  return Done{};
}

Status Executor::Do(const Begin& leaf, Loops loops) {
  const std::int64_t microbatch = Resolve(leaf.microbatch, loops);
  recorder_.Begin(leaf.phase, microbatch, leaf.side);
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

Status Executor::Do(const Send&, Loops) { return NotExecuted("messages between pipeline stages"); }
Status Executor::Do(const Recv&, Loops) { return NotExecuted("messages between pipeline stages"); }
Status Executor::Do(const Repeat&, Loops) { return Done{}; }

}  // namespace tidemark
