// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "sim/program/program.h"

namespace tidemark {

/// The number an index stands for, given the loops' values by LoopId. Never negative when it has a modulus.
inline std::int64_t Resolve(const Index& index, std::span<const std::int64_t> loops) {
  const std::int64_t value = (index.loop.valid() ? loops[index.loop.index] : 0) + index.offset;
  if (index.modulus == 0) {
    return value;
  }
  const std::int64_t rest = value % index.modulus;
  return rest < 0 ? rest + index.modulus : rest;
}

/// How a leaf touches a buffer. A Scale reads and writes, and counts as a write.
enum class Access : std::uint8_t { alloc, free, read, write };

/// Calls `visit(reference, access)` for every buffer that `node` names, reads before writes.
template <class AnyNode, class Visitor>
requires std::same_as<std::remove_const_t<AnyNode>, Node>
void ForEachAccess(AnyNode& node, Visitor visit) {
  std::visit(
      [&](auto& leaf) {
        using Leaf = std::remove_cvref_t<decltype(leaf)>;
        if constexpr (std::same_as<Leaf, Alloc>) {
          visit(leaf.buffer, Access::alloc);
        } else if constexpr (std::same_as<Leaf, Free>) {
          visit(leaf.buffer, Access::free);
        } else if constexpr (std::same_as<Leaf, Send>) {
          visit(leaf.buffer, Access::read);
        } else if constexpr (std::same_as<Leaf, Recv> || std::same_as<Leaf, Scale>) {
          visit(leaf.buffer, Access::write);
        } else if constexpr (requires { leaf.reads; }) {
          for (auto& buffer : leaf.reads) {
            visit(buffer, Access::read);
          }
          for (auto& buffer : leaf.writes) {
            visit(buffer, Access::write);
          }
        }
      },
      node);
}

/// Calls `visit(node_index, loops)` for every leaf in issue order, every Repeat written out; stops when it returns
/// false. `loops` are the loops' values by LoopId. The program is well nested: every body ends within the body around
/// it.
template <class Visitor>
void ForEachLeaf(const Program& program, Visitor visit) {
  struct Frame {
    const Repeat* repeat;
    std::size_t begin, end;
    std::int64_t left;
  };
  std::vector<std::int64_t> loops(program.loops.size());
  std::vector<Frame> frames;
  std::size_t at = 0;
  while (true) {
    while (!frames.empty() && at == frames.back().end) {
      Frame& frame = frames.back();
      if (--frame.left == 0) {
        frames.pop_back();
        continue;
      }
      loops[frame.repeat->loop.index] += frame.repeat->step;
      at = frame.begin;
    }
    if (at == program.nodes.size()) {
      return;
    }
    if (const auto* repeat = std::get_if<Repeat>(&program.nodes[at])) {
      ++at;
      if (repeat->size > 0 && repeat->count > 0) {
        loops[repeat->loop.index] = repeat->from;
        frames.push_back({repeat, at, at + repeat->size, repeat->count});
      } else {
        at += repeat->size;
      }
    } else if (!visit(at++, std::span<const std::int64_t>(loops))) {
      return;
    }
  }
}

}  // namespace tidemark
