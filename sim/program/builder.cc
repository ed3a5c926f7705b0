// SPDX-License-Identifier: Apache-2.0
#include "sim/program/builder.h"

#include <algorithm>
#include <type_traits>

#include "sim/program/walk.h"

namespace tidemark {
namespace {

/// Appends to a table and returns the id of the new row.
template <class IdType, class Row>
IdType Append(std::vector<Row>& table, Row row) {
  table.push_back(std::move(row));
  return IdType{static_cast<std::uint32_t>(table.size() - 1)};
}

/// The id of a text in a table, to which it is appended at its first use.
template <class Ids>
auto Intern(Ids& ids, std::vector<std::string>& table, std::string_view text) {
  const auto found = ids.find(text);
  if (found != ids.end()) {
    return found->second;
  }
  const auto id = Append<typename Ids::mapped_type>(table, std::string(text));
  ids.emplace(text, id);
  return id;
}

/// Calls `visit(id)` for the buffers that hold the memory of a view.
template <class AnyBuffer, class Visit>
void ForEachWhole(AnyBuffer& buffer, Visit visit) {
  if (buffer.base.valid()) {
    visit(buffer.base);
  }
  for (auto& slice : buffer.slices) {
    visit(slice.of);
  }
}

template <class Change>
void ChangeRefs(std::vector<BufferRef>& refs, Change change) {
  for (BufferRef& ref : refs) {
    change(ref.index[0]);
    change(ref.index[1]);
  }
}

}  // namespace

ProgramBuilder::ProgramBuilder(std::string role, std::int64_t role_index, std::int64_t ranks)
    : state_(std::make_shared<State>()) {
  state_->program.role = std::move(role);
  state_->program.role_index = role_index;
  state_->program.ranks = ranks;
  state_->program.nodes.reserve(4096);  // most programs fit: nodes are large, and moving them all again and again shows
  AddStream("host", StreamKind::host);
}

ProgramBuilder ProgramBuilder::Under(const std::string& prefix) const {
  ProgramBuilder under = *this;
  under.prefix_ = prefix_ + prefix;
  return under;
}

StreamId ProgramBuilder::AddStream(const std::string& name, StreamKind kind) {
  std::vector<Stream>& streams = state_->program.streams;
  const auto found =
      std::find_if(streams.begin(), streams.end(), [&](const Stream& stream) { return stream.name == name; });
  if (found != streams.end()) {
    return StreamId{static_cast<std::uint32_t>(found - streams.begin())};
  }
  return Append<StreamId>(streams, Stream{name, kind});
}

GroupId ProgramBuilder::AddGroup(Group group) { return Append<GroupId>(state_->program.groups, std::move(group)); }

ChannelId ProgramBuilder::AddChannel(Channel channel) {
  return Append<ChannelId>(state_->program.channels, std::move(channel));
}

LoopId ProgramBuilder::AddLoop(std::string name) { return Append<LoopId>(state_->program.loops, std::move(name)); }

void ProgramBuilder::AddLayers(LayerRun run) {
  run.block = prefix_ + run.block;
  state_->program.layers.push_back(std::move(run));
}

BufferId ProgramBuilder::AddBuffer(Buffer buffer) {
  TIDEMARK_CHECK(buffer.stream.valid());
  ForEachWhole(buffer, [&](const BufferId& whole) { TIDEMARK_CHECK(whole.index < state_->program.buffers.size()); });
  buffer.name = prefix_ + buffer.name;
  return Append<BufferId>(state_->program.buffers, std::move(buffer));
}

NameId ProgramBuilder::Named(std::string_view name) {
  return prefix_.empty() ? Intern(state_->names, state_->program.names, name)
                         : Intern(state_->names, state_->program.names, prefix_ + std::string(name));
}

EventId ProgramBuilder::Event(std::string_view name) { return Intern(state_->events, state_->program.events, name); }

void ProgramBuilder::Order(StreamId stream, StreamId other, std::string_view event) {
  const EventId id = Event(event);
  Emit(Record{id, other});
  Emit(Wait{id, stream});
}

void ProgramBuilder::Fold(std::size_t start, Repeat repeat) {
  repeat.size = static_cast<std::uint32_t>(size() - start);
  state_->program.nodes.insert(state_->program.nodes.begin() + static_cast<std::ptrdiff_t>(start), repeat);
}

template <class Change>
void ProgramBuilder::ChangeIndices(std::size_t start, std::size_t end, Change change) {
  const auto change_node = [&](auto& node) {
    if constexpr (requires { node.reads; }) {
      ChangeRefs(node.reads, change);
      ChangeRefs(node.writes, change);
    }
    if constexpr (requires { node.buffer.index; }) {
      change(node.buffer.index[0]);
      change(node.buffer.index[1]);
    }
    if constexpr (requires { node.microbatch; }) {
      change(node.microbatch);
    }
  };
  for (std::size_t i = start; i < end; ++i) {
    std::visit(change_node, state_->program.nodes[i]);
  }
}

void ProgramBuilder::Shift(std::size_t start, std::size_t end, LoopId loop, std::int64_t delta) {
  ChangeIndices(start, end, [&](Index& index) { index.offset += index.loop == loop ? delta : 0; });
}

void ProgramBuilder::Bind(std::size_t start, std::size_t end, LoopId loop, std::int64_t value) {
  ChangeIndices(start, end, [&](Index& index) {
    if (index.loop == loop) {
      index.loop = LoopId{};
      index.offset += value;
      if (index.modulus > 0) {
        index.offset %= index.modulus;
        index.modulus = 0;
      }
    }
  });
}

Program ProgramBuilder::Build() && {
  Program& program = state_->program;
  std::vector<bool> named(program.buffers.size());
  for (const Node& node : program.nodes) {
    ForEachAccess(node, [&](const BufferRef& ref, Access) { named[ref.buffer.index] = true; });
  }
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i]) {
      ForEachWhole(program.buffers[i], [&](BufferId& whole) { named[whole.index] = true; });
    }
  }
  std::vector<BufferId> moved(program.buffers.size());
  std::vector<Buffer> kept;
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i] || program.buffers[i].resident) {
      moved[i] = Append<BufferId>(kept, std::move(program.buffers[i]));
      ForEachWhole(kept.back(), [&](BufferId& whole) { whole = moved[whole.index]; });
    }
  }
  program.buffers = std::move(kept);
  for (Node& node : program.nodes) {
    ForEachAccess(node, [&](BufferRef& ref, Access) { ref.buffer = moved[ref.buffer.index]; });
  }
  program.nodes.shrink_to_fit();  // a run keeps it: room for what never comes would count as taken
  program.buffers.shrink_to_fit();
  return std::move(program);
}

}  // namespace tidemark
