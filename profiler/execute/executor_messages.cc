// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "profiler/capture/annotations.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/messages.h"
#include "sim/program/stages.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

constexpr std::string_view kPipeline = "pp";  // a rank's number in it is its role

/// Round a group, of all its shifts in one direction.
Route RouteFrom(std::int64_t rank, CollectiveKind shift, std::int64_t ranks) {
  const bool up = shift == CollectiveKind::shift_up;
  return {rank, (rank + (up ? 1 : ranks - 1)) % ranks, up ? 0 : 1};
}
/// That ends at a rank.
Route RouteTo(std::int64_t rank, CollectiveKind shift, std::int64_t ranks) {
  const bool up = shift == CollectiveKind::shift_up;
  return RouteFrom((rank + (up ? ranks - 1 : 1)) % ranks, shift, ranks);
}

}  // namespace

Message Executor::MessageOf(ChannelId channel, StreamId stream, std::int64_t peer,
                            const kernels::TensorType& type) const {
  return {peer, TagOf(*program_, channel), type.dtype, type.elements, device_.StreamOf(stream.index)};
}

/// Groups meet, and all messages' ways are known, before a step's time begins. The ranks of a group have the same
/// collectives over it, and all go through their groups in one order, that of the names: there is always a group whose
/// ranks are all at it, or come to it.
Status Executor::Connect(const Program& program) {
  std::set<std::string_view> exchanging;
  std::map<std::string_view, std::set<CollectiveKind>> shifting;
  for (const Node& node : program.nodes) {
    if (const auto* collective = std::get_if<Collective>(&node)) {
      const std::string_view group = program.groups[collective->group.index].name;
      if (IsShift(collective->kind)) {
        shifting[group].insert(collective->kind);  // messages between two ranks each
      } else {
        exchanging.insert(group);
      }
    }
  }
  for (const auto& [name, group] : groups_) {
    if (exchanging.count(name) > 0) {
      TIDEMARK_TRY(Call([&group = *group] { return group.Join(); }));
    }
    std::vector<Route> routes;
    for (const CollectiveKind kind : shifting[name]) {
      routes.push_back(RouteFrom(group->rank(), kind, group->size()));
      routes.push_back(RouteTo(group->rank(), kind, group->size()));
    }
    if (!routes.empty() && group->size() > 1) {
      TIDEMARK_TRY(Call([&group = *group, &routes] { return group.Connect(routes); }));
    }
  }
  const auto pipeline = groups_.find(kPipeline);
  if (pipeline == groups_.end() || pipeline->second->size() == 1) {
    return Done{};
  }
  std::vector<Route> routes;
  for (std::size_t i = 0; i < program.channels.size(); ++i) {
    const Channel& channel = program.channels[i];
    if (channel.from_role != pipeline->second->rank() && channel.to_role != pipeline->second->rank()) {
      continue;
    }
    routes.push_back({channel.from_role, channel.to_role, TagOf(program, ChannelId{static_cast<std::uint32_t>(i)})});
  }
  return Call([&] { return pipeline->second->Connect(routes); });
}

/// Of all its buffers, one message each.
Status Executor::Shift(const Collective& leaf, Loops loops, std::span<const Operand> from, std::span<const Operand> to,
                       Pending& pending) {
  Communicator& group = *pending.group;
  const Route out = RouteFrom(group.rank(), leaf.kind, group.size());
  const Route in = RouteTo(group.rank(), leaf.kind, group.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    const kernels::TensorType& type = from[i].tensor.type;
    Message message{out.to, out.tag, type.dtype, type.elements, device_.StreamOf(leaf.stream.index)};
    TIDEMARK_TRY(Call([&] { return group.Send(message, from[i].tensor.data); }));
    message.peer = in.from;
    TIDEMARK_ASSIGN(const Communicator::Ticket ticket, Call([&] { return group.Receive(message, to[i].tensor.data); }));
    pending.tickets.push_back(ticket);
    held_[SlotOf(leaf.writes[i], loops)].type = type;
  }
  return Done{};
}

Status Executor::Do(const Send& leaf, Loops loops) {
  const std::string& name = program_->names[leaf.name.index];
  const AnnotatedRange range = recorder_.Operation(name);
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const Channel& channel = program_->channels[leaf.channel.index];
  UseOn(leaf.stream, std::span(&leaf.buffer, 1), loops);
  const Held& held = held_[SlotOf(leaf.buffer, loops)];
  Communicator& pipeline = *groups_.find(kPipeline)->second;
  const Started started = StartOn(leaf.stream, name, &pipeline);
  const Message message = MessageOf(leaf.channel, leaf.stream, channel.to_role, held.type);
  TIDEMARK_TRY(Call([&] { return pipeline.Send(message, DataAt(leaf.buffer, loops)); }));
  EndOn(leaf.stream, name, started);
  return Done{};
}

Status Executor::Do(const Recv& leaf, Loops loops) {
  const std::string& name = program_->names[leaf.name.index];
  const AnnotatedRange range = recorder_.Operation(name);
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const Channel& channel = program_->channels[leaf.channel.index];
  TIDEMARK_ASSIGN(const kernels::TensorType type, MessageType({job_, model_, WithoutStage(name), BufferOf(leaf.buffer),
                                                               Resolve(leaf.buffer.index[0], loops), options_.exact}));
  UseOn(leaf.stream, std::span(&leaf.buffer, 1), loops);
  held_[SlotOf(leaf.buffer, loops)].type = type;
  Communicator& pipeline = *groups_.find(kPipeline)->second;
  Pending& pending = pending_.emplace_back(PendingOf(leaf.stream, leaf.name, pipeline));
  const Message message = MessageOf(leaf.channel, leaf.stream, channel.from_role, type);
  TIDEMARK_ASSIGN(const Communicator::Ticket ticket,
                  Call([&] { return pipeline.Receive(message, DataAt(leaf.buffer, loops)); }));
  pending.tickets.push_back(ticket);
  return LeaveToStream(pending);
}

}  // namespace tidemark
