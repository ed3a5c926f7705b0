// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "profiler/capture/annotations.h"
#include "profiler/execute/exchanged_part.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/joint.h"

namespace tidemark {
namespace {

/// Cuts all its buffers as one flat tensor; any other gather cuts each by itself.
constexpr std::string_view kFlatGather = "gather flat parameters";

}  // namespace

Status Executor::Do(const Collective& leaf, Loops loops) {
  const AnnotatedRange range = recorder_.Operation(program_->names[leaf.name.index]);
  const auto group = groups_.find(program_->groups[leaf.group.index].name);
  if (group == groups_.end() || group->second->size() != program_->groups[leaf.group.index].size) {
    return NotExecuted(fmt::format("collectives over the group '{}'", program_->groups[leaf.group.index].name));
  }
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const std::vector<Operand> reads = OperandsAt(leaf.reads, loops), writes = OperandsAt(leaf.writes, loops);
  UseOn(leaf.stream, leaf.reads, loops);
  UseOn(leaf.stream, leaf.writes, loops);
  Pending& pending = pending_.emplace_back(PendingOf(leaf.stream, leaf.name, *group->second));
  TIDEMARK_TRY(BeginAll(leaf, loops, reads, writes, pending));
  return LeaveToStream(pending);
}

Status Executor::BeginAll(const Collective& leaf, Loops loops, std::span<const Operand> reads,
                          std::span<const Operand> writes, Pending& pending) {
  if (IsShift(leaf.kind)) {
    return Shift(leaf, loops, reads, writes, pending);
  }
  if (program_->names[leaf.name.index] == kFlatGather) {
    return GatherFlat(leaf, writes, pending);
  }
  if (IsJoint(*program_, leaf)) {
    return BeginJoint(leaf, writes, pending);
  }
  for (std::size_t i = 0; i < writes.size(); ++i) {
    Operand sent = reads[i];
    if (leaf.kind == CollectiveKind::all_gather) {
      sent.tensor = PartToGather(model_, sent, writes[i], pending.group->size()).value_or(sent.tensor);
    }
    TIDEMARK_TRY(BeginExchange(leaf, sent, writes[i], pending));
    Held& held = held_[SlotOf(leaf.writes[i], loops)];
    held.type = {sent.tensor.type.dtype, BufferOf(leaf.writes[i]).elements};
    if (auto part = ScatteredPart(*program_, leaf, model_, reads[i], writes[i])) {
      held.packed = std::move(part);
    }
  }
  return Done{};
}

/// One message of buffers that lie one behind the other in the real system: a rank's part of them all begins and ends
/// inside buffers, and goes to the others stretch by stretch.
Status Executor::GatherFlat(const Collective& leaf, std::span<const Operand> parts, Pending& pending) {
  const std::int64_t part = leaf.payload_elements / pending.group->size();
  std::int64_t first = 0;  // of the buffer, in the message
  for (const Operand& operand : parts) {
    const std::int64_t end = first + operand.tensor.type.elements;
    for (std::int64_t begin = first; begin < end;) {
      const std::int64_t root = begin / part, until = std::min(end, (root + 1) * part);
      const kernels::Tensor stretch = kernels::Slice(operand.tensor, begin - first, until - begin);
      TIDEMARK_TRY(Issue(pending,
                         {CollectiveKind::broadcast, Reduction::none, stretch.type.dtype, stretch.type.elements,
                          stretch.data, stretch.data, root},
                         [] {}));
      begin = until;
    }
    first = end;
  }
  return Done{};
}

Status Executor::BeginExchange(const Collective& leaf, const Operand& from, const Operand& to, Pending& pending) {
  const std::int64_t ranks = pending.group->size(), rank = pending.group->rank();
  const std::int64_t elements = from.packed ? from.packed->elements : from.tensor.type.elements;
  Exchange exchange{leaf.kind, leaf.reduction, from.tensor.type.dtype, elements, from.tensor.data, to.tensor.data};
  const bool in_place = from.tensor.data == to.tensor.data;
  const bool is_whole = in_place || elements == leaf.payload_elements;  // of which this rank's part is sent
  if (leaf.kind == CollectiveKind::all_gather && !is_whole) {
    exchange.elements *= ranks;
  }
  std::int64_t written = exchange.elements;
  const Bytes before = SizeOf(exchange.dtype) * exchange.BeginOf(rank, ranks);
  if (leaf.kind == CollectiveKind::all_gather && is_whole) {
    exchange.from = static_cast<const char*>(exchange.from) + before.count();
  } else if (leaf.kind == CollectiveKind::reduce_scatter) {
    written = exchange.PartOf(rank, ranks);
    exchange.to = static_cast<char*>(exchange.to) + (in_place ? before.count() : 0);
  }
  const double factor = FactorOf(leaf, ranks);
  const kernels::Tensor result{{exchange.dtype, written}, exchange.to};
  return Issue(pending, exchange, [this, factor, result, stream = pending.stream.index] {
    if (factor != 1.0) {
      device_.Give(stream, [=](const Queue& queue) { on::Scale(queue, factor, result); });
    }
  });
}

Status Executor::Issue(Pending& pending, Exchange exchange, std::function<void()> then) {
  exchange.stream = device_.StreamOf(pending.stream.index);
  TIDEMARK_ASSIGN(const Communicator::Ticket ticket, Call([&] { return pending.group->Begin(exchange); }));
  pending.tickets.push_back(ticket);
  pending.then.push_back(std::move(then));
  return Done{};
}

/// What the stream's order is enough for, the host has done with: it only hears at the end of the step whether it went
/// well.
Status Executor::LeaveToStream(Pending& pending) {
  if (!pending.group->on_stream()) {
    return Done{};
  }
  for (const Communicator::Ticket ticket : pending.tickets) {
    on_streams_.emplace_back(pending.group, ticket);
  }
  pending.tickets.clear();
  return Finish(pending);
}

/// All work of a step is done.
Status Executor::FinishAll() {
  for (Pending& pending : pending_) {
    TIDEMARK_TRY(Finish(pending));
  }
  recorder_.Wait(true);
  for (const auto& [group, ticket] : on_streams_) {
    if (group->size() > 1) {  // else there is nobody to wait for but the stream
      TIDEMARK_TRY(group->Finish(ticket));
    }
  }
  on_streams_.clear();
  device_.Synchronize();
  recorder_.Wait(false);
  return Done{};
}

double Executor::FactorOf(const Collective& leaf, std::int64_t ranks) {
  const double average = leaf.reduction == Reduction::avg ? 1.0 / static_cast<double>(ranks) : 1.0;
  return average * static_cast<double>(leaf.scale.numerator()) / static_cast<double>(leaf.scale.denominator());
}

}  // namespace tidemark
