// SPDX-License-Identifier: Apache-2.0
#include "sim/program/builder.h"

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

template <class Change>
void ChangeRefs(std::vector<BufferRef>& refs, Change change) {
  for (BufferRef& ref : refs) {
    change(ref.index[0]);
    change(ref.index[1]);
  }
}

}  // namespace

ProgramBuilder::ProgramBuilder(std::string role, std::int64_t role_index, std::int64_t ranks) {
  program_.role = std::move(role);
  program_.role_index = role_index;
  program_.ranks = ranks;
  program_.nodes.reserve(4096);  // most programs fit: nodes are large, and moving them all again and again shows
  AddStream("host", StreamKind::host);
}

StreamId ProgramBuilder::AddStream(std::string name, StreamKind kind) {
  return Append<StreamId>(program_.streams, Stream{std::move(name), kind});
}

GroupId ProgramBuilder::AddGroup(Group group) { return Append<GroupId>(program_.groups, std::move(group)); }

ChannelId ProgramBuilder::AddChannel(Channel channel) {
  return Append<ChannelId>(program_.channels, std::move(channel));
}

LoopId ProgramBuilder::AddLoop(std::string name) { return Append<LoopId>(program_.loops, std::move(name)); }

void ProgramBuilder::AddLayers(LayerRun run) { program_.layers.push_back(std::move(run)); }

BufferId ProgramBuilder::AddBuffer(Buffer buffer) {
  TIDEMARK_CHECK(buffer.stream.valid());
  TIDEMARK_CHECK(!buffer.is_view() || buffer.base.index < program_.buffers.size());
  return Append<BufferId>(program_.buffers, std::move(buffer));
}

NameId ProgramBuilder::Named(std::string_view name) {
  const auto [at, inserted] = names_.try_emplace(std::string(name));
  if (inserted) {
    at->second = Append<NameId>(program_.names, std::string(name));
  }
  return at->second;
}

EventId ProgramBuilder::Event(std::string_view name) {
  const auto [at, inserted] = events_.try_emplace(std::string(name));
  if (inserted) {
    at->second = Append<EventId>(program_.events, std::string(name));
  }
  return at->second;
}

void ProgramBuilder::Order(StreamId stream, StreamId other, std::string_view event) {
  const EventId id = Event(event);
  Emit(Record{id, other});
  Emit(Wait{id, stream});
}

void ProgramBuilder::Fold(std::size_t start, Repeat repeat) {
  repeat.size = static_cast<std::uint32_t>(size() - start);
  program_.nodes.insert(program_.nodes.begin() + static_cast<std::ptrdiff_t>(start), repeat);
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
    std::visit(change_node, program_.nodes[i]);
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
  std::vector<bool> named(program_.buffers.size());
  for (const Node& node : program_.nodes) {
    ForEachAccess(node, [&](const BufferRef& ref, Access) { named[ref.buffer.index] = true; });
  }
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i] && program_.buffers[i].is_view()) {
      named[program_.buffers[i].base.index] = true;
    }
  }
  std::vector<BufferId> moved(program_.buffers.size());
  std::vector<Buffer> kept;
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i] || program_.buffers[i].resident) {
      moved[i] = Append<BufferId>(kept, std::move(program_.buffers[i]));
      if (kept.back().is_view()) {
        kept.back().base = moved[kept.back().base.index];
      }
    }
  }
  program_.buffers = std::move(kept);
  for (Node& node : program_.nodes) {
    ForEachAccess(node, [&](BufferRef& ref, Access) { ref.buffer = moved[ref.buffer.index]; });
  }
  return std::move(program_);
}

}  // namespace tidemark
