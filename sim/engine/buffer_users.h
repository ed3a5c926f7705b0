// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/engine/simulate.h"
#include "sim/program/program.h"

namespace tidemark {

/// Which streams use a buffer, beside the one that it was born on, from its allocation to its free.
class BufferUsers {
 public:
  /// `first_slot`: by family, where its members begin, one behind the other; `slots`: of all.
  BufferUsers(const Program& program, std::vector<std::uint32_t> first_slot, std::size_t slots)
      : program_(program), first_slot_(std::move(first_slot)), users_(slots) {}

  /// `stream` is given work that reads or writes this; a view is memory of another buffer.
  void Add(const BufferInstance& used, StreamId stream) {
    BufferId family = used.buffer;
    std::uint32_t slot = used.slot;
    if (const Buffer& view = program_.buffers[family.index]; view.is_view()) {
      family = view.MemoryOf(slot - first_slot_[family.index]).of;
      slot = first_slot_[family.index];
    }
    std::vector<StreamId>& users = users_[slot];
    if (stream != program_.buffers[family.index].stream && std::ranges::find(users, stream) == users.end()) {
      users.push_back(stream);
    }
  }

  /// Of the buffer that is freed; from now on nobody uses it.
  std::vector<StreamId> Take(std::uint32_t slot) { return std::exchange(users_[slot], {}); }

 private:
  const Program& program_;
  std::vector<std::uint32_t> first_slot_;
  std::vector<std::vector<StreamId>> users_;  // by slot
};

template <class Leaf>
concept ReadsAndWrites = requires(const Leaf& leaf) {
  leaf.reads;
  leaf.writes;
};
template <class Leaf>
concept MovesOneBuffer = requires(const Leaf& leaf) {
  leaf.buffer;
  leaf.stream;
};

/// Calls `visit(BufferRef, StreamId)` for what the work of a leaf reads or writes.
template <class Leaf, class Visit>
void ForEachUsed(const Leaf& leaf, Visit visit) {
  if constexpr (ReadsAndWrites<Leaf>) {
    for (const auto* refs : {&leaf.reads, &leaf.writes}) {
      for (const BufferRef& ref : *refs) {
        visit(ref, leaf.stream);
      }
    }
  } else if constexpr (MovesOneBuffer<Leaf>) {
    visit(leaf.buffer, leaf.stream);
  }
}

}  // namespace tidemark
