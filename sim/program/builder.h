// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "sim/program/program.h"

namespace tidemark {

/// Writes a Program: interns names and events, appends nodes, and folds stretches already written into loops. Copies
/// write the same program.
class ProgramBuilder {
 public:
  ProgramBuilder(std::string role, std::int64_t role_index, std::int64_t ranks);

  /// Writes the same program; the buffers and kernels that it names have `prefix` before their names.
  ProgramBuilder Under(const std::string& prefix) const;

  /// The one of this name if there is one.
  StreamId AddStream(const std::string& name, StreamKind kind);
  GroupId AddGroup(Group group);
  ChannelId AddChannel(Channel channel);
  LoopId AddLoop(std::string name);
  void AddLayers(LayerRun run);
  BufferId AddBuffer(Buffer buffer);
  NameId Named(std::string_view name);
  EventId Event(std::string_view name);

  const Buffer& buffer(BufferId id) const { return state_->program.buffers[id.index]; }

  std::size_t size() const { return state_->program.nodes.size(); }
  template <class Leaf>
  void Emit(Leaf leaf) {
    state_->program.nodes.emplace_back(std::move(leaf));
  }

  /// `stream` waits for what `other` has been given so far.
  void Order(StreamId stream, StreamId other, std::string_view event);

  /// Makes nodes [start, size()) the body of a loop. Its variable must already stand in the indices of the body.
  void Fold(std::size_t start, Repeat repeat);
  /// Adds `delta` to every index of nodes [start, end) that uses `loop`.
  void Shift(std::size_t start, std::size_t end, LoopId loop, std::int64_t delta);
  /// Replaces `loop` by a value in nodes [start, end).
  void Bind(std::size_t start, std::size_t end, LoopId loop, std::int64_t value);

  /// The program. Buffer families that no node names are left out, unless they are alive all through the step.
  Program Build() &&;

 private:
  template <class Change>
  void ChangeIndices(std::size_t start, std::size_t end, Change change);

  /// Finds names without making strings of them.
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  template <class IdType>
  using Interned = std::unordered_map<std::string, IdType, TextHash, std::equal_to<>>;

  struct State {
    Program program;
    Interned<NameId> names;
    Interned<EventId> events;
  };

  std::shared_ptr<State> state_;
  std::string prefix_;
};

}  // namespace tidemark
