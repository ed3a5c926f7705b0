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

/// Which member of its family a reference names, counted along the last extent first.
inline std::int64_t MemberOf(const Buffer& buffer, const BufferRef& ref, std::span<const std::int64_t> loops) {
  return Resolve(ref.index[0], loops) * buffer.extents[1] + Resolve(ref.index[1], loops);
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

/// Calls `visit(node_index, times)` once for every leaf, `times` being how often it runs: the product of the counts of
/// the loops around it.
template <class Visitor>
void ForEachLeafAndTimes(const Program& program, Visitor visit) {
  struct Body {
    std::size_t end;
    std::int64_t times;
  };
  std::vector<Body> around = {{program.nodes.size(), 1}};
  for (std::size_t at = 0; at < program.nodes.size(); ++at) {
    while (around.back().end <= at) {
      around.pop_back();
    }
    if (const auto* repeat = std::get_if<Repeat>(&program.nodes[at])) {
      around.push_back({at + 1 + repeat->size, around.back().times * repeat->count});
    } else {
      visit(at, around.back().times);
    }
  }
}

/// Stands at one leaf after the other in issue order, every Repeat written out. The program is well nested: every body
/// ends within the body around it.
class LeafCursor {
 public:
  explicit LeafCursor(const Program& program) : program_(program), loops_(program.loops.size()) { Settle(); }

  bool at_end() const { return at_ == program_.nodes.size(); }
  /// Index of the node.
  std::size_t node() const { return at_; }
  /// The loops' values by LoopId.
  std::span<const std::int64_t> loops() const { return loops_; }
  void Next() {
    ++at_;
    Settle();
  }

 private:
  struct Frame {
    const Repeat* repeat;
    std::size_t begin, end;
    std::int64_t left;
  };

  /// Out of bodies that have ended and into those that begin, up to a leaf.
  void Settle() {
    while (true) {
      if (!frames_.empty() && at_ == frames_.back().end) {
        Frame& frame = frames_.back();
        if (--frame.left == 0) {
          frames_.pop_back();
        } else {
          loops_[frame.repeat->loop.index] += frame.repeat->step;
          at_ = frame.begin;
        }
        continue;
      }
      const auto* repeat = at_end() ? nullptr : std::get_if<Repeat>(&program_.nodes[at_]);
      if (repeat == nullptr) {
        return;
      }
      ++at_;
      if (repeat->size > 0 && repeat->count > 0) {
        loops_[repeat->loop.index] = repeat->from;
        frames_.push_back({repeat, at_, at_ + repeat->size, repeat->count});
      } else {
        at_ += repeat->size;
      }
    }
  }

  const Program& program_;
  std::vector<std::int64_t> loops_;
  std::vector<Frame> frames_;
  std::size_t at_ = 0;
};

/// Calls `visit(node_index, loops)` for every leaf; stops when it returns false.
template <class Visitor>
void ForEachLeaf(const Program& program, Visitor visit) {
  for (LeafCursor cursor(program); !cursor.at_end(); cursor.Next()) {
    if (!visit(cursor.node(), cursor.loops())) {
      return;
    }
  }
}

}  // namespace tidemark
