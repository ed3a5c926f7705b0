// SPDX-License-Identifier: Apache-2.0
#include "sim/program/idle_buffers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <variant>

#include "sim/program/hazards.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

bool IsOfModel(Category category) {
  switch (category) {
    case Category::activation:
    case Category::logits:
    case Category::input:
    case Category::tp_gather:
    case Category::representation_cache:
    case Category::rng:
      return true;
    default:
      return false;
  }
}

class IdleFinder {
 public:
  explicit IdleFinder(const Program& program) : program_(program) {
    for (const Buffer& buffer : program.buffers) {
      first_slot_.push_back(slots_.size());
      slots_.resize(slots_.size() + static_cast<std::size_t>(buffer.count()));
    }
  }

  std::vector<IdleBuffers> Run() {
    ForEachLeaf(program_, [&](std::size_t at, std::span<const std::int64_t> loops) {
      loops_ = loops;
      const Node& node = program_.nodes[at];
      if (const auto* begin = std::get_if<Begin>(&node)) {
        phase_ = begin->phase;
      }
      Count(node);
      ForEachAccess(node, [&](const BufferRef& ref, Access access) { Touch(ref, access, node); });
      return true;
    });
    std::vector<IdleBuffers> found;
    for (auto& [family, idle] : idle_) {
      found.push_back(std::move(idle));
      found.back().most = MostAtOnce(changes_[family]);
    }
    return found;
  }

 private:
  struct Counts {
    std::int64_t all = 0, of_model = 0;
  };
  struct Slot {
    bool allocated = false;
    Counts last_use;
    const Node* by = nullptr;
  };

  void Count(const Node& node) {
    const bool works = std::visit(
        [](const auto& leaf) {
          return requires {
            leaf.stream;
            leaf.name;
          };
        },
        node);
    if (!works) {
      return;
    }
    bool of_model = false;
    ForEachAccess(node, [&](const BufferRef& ref, Access) {
      of_model = of_model || IsOfModel(program_.buffers[ref.buffer.index].category);
    });
    ++now_.all;
    now_.of_model += of_model ? 1 : 0;
  }

  void Touch(const BufferRef& ref, Access access, const Node& node) {
    const Buffer& named = program_.buffers[ref.buffer.index];
    const BufferId family = named.is_view() ? named.base : ref.buffer;  // one without an index
    Slot& slot = slots_[named.is_view() ? first_slot_[family.index] : SlotOf(ref)];
    if (access == Access::free) {
      if (std::exchange(slot.allocated, false)) {
        Freed(family, slot);
      }
      return;
    }
    slot.allocated = slot.allocated || access == Access::alloc;
    slot.last_use = now_;
    slot.by = &node;
  }

  void Freed(BufferId family, const Slot& slot) {
    const Buffer& buffer = program_.buffers[family.index];
    const bool of_model = IsOfModel(buffer.category);
    const std::int64_t between = of_model ? now_.of_model - slot.last_use.of_model : now_.all - slot.last_use.all;
    if (between == 0) {
      return;
    }
    const auto [at, is_new] = idle_.try_emplace(family.index);
    IdleBuffers& idle = at->second;
    if (is_new) {
      idle.family = family;
      idle.last_used_by = OperationName(program_, *slot.by);
      idle.freed_in = phase_;
    }
    ++idle.buffers;
    idle.operations = std::max(idle.operations, between);
    changes_[family.index].emplace_back(slot.last_use.all, buffer.bytes());
    changes_[family.index].emplace_back(now_.all, Bytes() - buffer.bytes());
  }

  /// Of (when, by how many bytes idle memory grows): at one instant it shrinks first.
  static Bytes MostAtOnce(std::vector<std::pair<std::int64_t, Bytes>>& changes) {
    std::sort(changes.begin(), changes.end());
    Bytes now, most;
    for (const auto& [when, change] : changes) {
      now += change;
      most = std::max(most, now);
    }
    return most;
  }

  std::size_t SlotOf(const BufferRef& ref) const {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    return first_slot_[ref.buffer.index] +
           static_cast<std::size_t>(Resolve(ref.index[0], loops_) * buffer.extents[1] + Resolve(ref.index[1], loops_));
  }

  const Program& program_;
  std::vector<std::size_t> first_slot_;  ///< by family
  std::vector<Slot> slots_;
  Counts now_;
  Phase phase_ = Phase::load;
  std::span<const std::int64_t> loops_;
  std::map<std::size_t, IdleBuffers> idle_;  ///< by family
  std::map<std::size_t, std::vector<std::pair<std::int64_t, Bytes>>> changes_;
};

}  // namespace

std::vector<IdleBuffers> FindIdle(const Program& program) { return IdleFinder(program).Run(); }

}  // namespace tidemark
