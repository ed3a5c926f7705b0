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
  IdleFinder(const Program& program, const IdleGroups& groups) : program_(program) {
    for (const Buffer& buffer : program.buffers) {
      group_.push_back(groups ? groups({static_cast<std::uint32_t>(group_.size())}) : group_.size());
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
    for (auto& [group, idle] : idle_) {
      std::sort(idle.families.begin(), idle.families.end());
      idle.most = MostAtOnce(changes_[group]);
      found.push_back(std::move(idle));
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
    const BufferId family =
        named.is_view() ? named.MemoryOf(MemberOf(named, ref, loops_)).of : ref.buffer;  // one without an index
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
    const std::size_t group = group_[family.index];
    IdleBuffers& idle = idle_[group];
    if (std::find(idle.families.begin(), idle.families.end(), family) == idle.families.end()) {
      idle.families.push_back(family);
    }
    if (idle.buffers == 0) {
      idle.last_used_by =
          std::holds_alternative<Alloc>(*slot.by) ? "its allocation" : OperationName(program_, *slot.by);
      idle.freed_in = phase_;
    }
    ++idle.buffers;
    idle.operations = std::max(idle.operations, between);
    changes_[group].emplace_back(slot.last_use.all, buffer.bytes());
    changes_[group].emplace_back(now_.all, Bytes() - buffer.bytes());
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
    return first_slot_[ref.buffer.index] +
           static_cast<std::size_t>(MemberOf(program_.buffers[ref.buffer.index], ref, loops_));
  }

  const Program& program_;
  std::vector<std::size_t> group_, first_slot_;  ///< by family
  std::vector<Slot> slots_;
  Counts now_;
  Phase phase_ = Phase::load;
  std::span<const std::int64_t> loops_;
  std::map<std::size_t, IdleBuffers> idle_;  ///< by group
  std::map<std::size_t, std::vector<std::pair<std::int64_t, Bytes>>> changes_;
};

}  // namespace

std::vector<IdleBuffers> FindIdle(const Program& program, const IdleGroups& groups) {
  return IdleFinder(program, groups).Run();
}

}  // namespace tidemark
