// SPDX-License-Identifier: Apache-2.0
#include "sim/program/hazards.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <tuple>

#include "sim/program/layers.h"
#include "sim/program/text.h"
#include "sim/program/verify_role.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

class ValueFollower {
 public:
  explicit ValueFollower(const Program& program) : program_(program), memory_(program.buffers.size()) {
    for (const Buffer& buffer : program.buffers) {
      first_slot_.push_back(written_.size());
      written_.resize(written_.size() + static_cast<std::size_t>(buffer.count()));
    }
  }

  std::vector<Hazard> Run() {
    ForEachLeaf(program_, [&](std::size_t at, std::span<const std::int64_t> loops) {
      at_ = at;
      loops_ = loops;
      if (const auto* begin = std::get_if<Begin>(&program_.nodes[at])) {
        microbatch_ = Resolve(begin->microbatch, loops);
        side_ = begin->side;
      }
      ForEachAccess(program_.nodes[at], [&](const BufferRef& ref, Access access) { Touch(ref, access); });
      return true;
    });
    return std::move(hazards_);
  }

 private:
  /// What one buffer with memory of its own holds: the last write to it, counted from 1, and the node.
  struct Memory {
    std::int64_t written = 0;
    std::size_t by = 0;
  };

  void Touch(const BufferRef& ref, Access access) {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    if (!buffer.slices.empty()) {
      return;  // each has its bytes to itself while their buffer lives: RoleVerifier sees whether it was written
    }
    const BufferId base = buffer.is_view() ? buffer.base : ref.buffer;
    if (access == Access::free || program_.buffers[base.index].count() != 1) {
      return;  // families of several buffers have no views
    }
    Memory& memory = memory_[base.index];
    std::int64_t& written = written_[SlotOf(ref)];
    if (access == Access::read) {
      if (written != memory.written || (buffer.is_view() && written == 0)) {
        Report(ref, base, written, memory);
      }
      return;
    }
    memory = {++writes_, at_};
    written = memory.written;
  }

  std::size_t SlotOf(const BufferRef& ref) const {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    return first_slot_[ref.buffer.index] +
           static_cast<std::size_t>(Resolve(ref.index[0], loops_) * buffer.extents[1] + Resolve(ref.index[1], loops_));
  }

  void Report(const BufferRef& ref, BufferId base, std::int64_t written, const Memory& memory) {
    if (seen_.insert({SlotOf(ref), written, memory.written}).second) {
      const Node& node = program_.nodes[at_];
      hazards_.push_back({.kind = Hazard::Kind::clobber,
                          .buffer = base,
                          .value = Resolved(ref),
                          .overwritten_by = NameOf(memory),
                          .read_by = OperationName(program_, node),
                          .microbatch = microbatch_,
                          .side = side_,
                          .layer = LayerOf(program_, node, loops_),
                          .read_node = at_,
                          .streams = {}});
    }
  }

  std::string NameOf(const Memory& memory) const {
    const Node& node = program_.nodes[memory.by];
    return memory.written == 0                   ? std::string()
           : std::holds_alternative<Alloc>(node) ? "its allocation"
                                                 : OperationName(program_, node);
  }

  std::string Resolved(const BufferRef& ref) const {
    const auto constant = [&](const Index& index) { return Index{.loop = {}, .offset = Resolve(index, loops_)}; };
    return Print(program_, BufferRef{ref.buffer, {constant(ref.index[0]), constant(ref.index[1])}});
  }

  const Program& program_;
  std::vector<std::size_t> first_slot_;  ///< by family
  std::vector<std::int64_t> written_;    ///< by slot: which write to the memory was through this name
  std::vector<Memory> memory_;           ///< by family
  std::int64_t writes_ = 0;
  std::set<std::tuple<std::size_t, std::int64_t, std::int64_t>> seen_;
  std::vector<Hazard> hazards_;
  std::size_t at_ = 0;
  std::span<const std::int64_t> loops_;
  std::int64_t microbatch_ = -1;
  Side side_ = Side::none;
};

}  // namespace

std::vector<Hazard> FindHazards(const Program& program) {
  const bool shares = std::any_of(program.buffers.begin(), program.buffers.end(),
                                  [](const Buffer& buffer) { return buffer.base.valid(); });
  return shares ? ValueFollower(program).Run() : std::vector<Hazard>();
}

std::vector<Hazard> FindRaces(const Program& program, std::size_t limit) {
  Findings findings(std::numeric_limits<std::size_t>::max());
  std::vector<Hazard> races;
  RoleVerifier verifier(program, findings);
  verifier.CollectRaces(races, limit);
  verifier.Run();
  return races;
}

std::string OperationName(const Program& program, const Node& node) {
  return std::visit(
      [&](const auto& leaf) {
        if constexpr (requires { leaf.name; }) {
          return program.names[leaf.name.index];
        } else {
          return Print(program, Node(leaf));
        }
      },
      node);
}

std::string Describe(const Program& program, const Hazard& hazard) {
  const std::string layer = hazard.layer ? fmt::format(", layer {}", *hazard.layer) : "";
  const std::string counted = hazard.side == Side::none ? "microbatch" : fmt::format("{} chunk", Name(hazard.side));
  const std::string place = fmt::format("{} {}{}", counted, hazard.microbatch, layer);
  if (hazard.kind == Hazard::Kind::race) {
    return fmt::format("{}: {} and {} touch {} without an order between them, on {}", place, hazard.overwritten_by,
                       hazard.read_by, hazard.value, hazard.streams);
  }
  const std::string why =
      hazard.overwritten_by.empty() ? "nobody has written" : fmt::format("{} has overwritten", hazard.overwritten_by);
  return fmt::format("{}: {} reads {}, which {} in {}", place, hazard.read_by, hazard.value, why,
                     program.buffers[hazard.buffer.index].name);
}

}  // namespace tidemark
