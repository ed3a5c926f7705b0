// SPDX-License-Identifier: Apache-2.0
#include "sim/program/verify_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "sim/program/walk.h"

namespace tidemark {
namespace {

using Rule = Finding::Rule;

bool IsOnHost(const Program& program, const BufferRef& ref) {
  return program.buffers[ref.buffer.index].place == Place::host;
}

bool RunsOnHost(const Node& node) {
  const auto* compute = std::get_if<Compute>(&node);
  return compute != nullptr && compute->stream.index == 0;
}

/// A collective of the host's memory alone, as gloo's.
bool JoinsHosts(const Program& program, const Node& node) {
  const auto* collective = std::get_if<Collective>(&node);
  if (collective == nullptr) {
    return false;
  }
  const auto is_on_host = [&](const BufferRef& ref) { return IsOnHost(program, ref); };
  return std::all_of(collective->reads.begin(), collective->reads.end(), is_on_host) &&
         std::all_of(collective->writes.begin(), collective->writes.end(), is_on_host);
}

/// Follows which updates of the host a buffer of the host contains.
class UpdateFollower {
 public:
  explicit UpdateFollower(const Program& program) : program_(program) {
    for (const Buffer& buffer : program.buffers) {
      first_slot_.push_back(slots_);
      slots_ += static_cast<std::size_t>(buffer.count());
    }
  }

  void Run(Findings& findings) {
    std::vector<std::size_t> nodes;  // by update
    Updates missing;
    ForEachLeaf(program_, [&](std::size_t at, std::span<const std::int64_t> loops) {
      const Node& node = program_.nodes[at];
      if (const auto* copy = std::get_if<Copy>(&node)) {
        Hand(copy->reads, copy->writes, loops, missing);
      } else if (const auto* compute = std::get_if<Compute>(&node); compute != nullptr && RunsOnHost(node)) {
        Hand(compute->reads, compute->writes, loops, missing);
        if (std::holds_alternative<OptimizerUpdate>(compute->op)) {
          const bool of_parameters = std::any_of(compute->writes.begin(), compute->writes.end(),
                                                 [&](const BufferRef& ref) { return IsParameter(ref); });
          for (const BufferRef& ref : compute->writes) {
            const std::size_t slot = SlotOf(ref, loops);
            contains_[slot] = {};
            if (!of_parameters || IsParameter(ref)) {
              const Update update{nodes.size(), of_parameters ? slot : kMasters};
              missing.insert(update);
              contains_[slot] = {update};
            }
          }
          nodes.push_back(at);
        }
      }
      return true;
    });
    for (const auto& [slot, updates] : contains_) {
      if (brought_.contains(slot)) {  // as the next step will
        Erase(updates, missing);
      }
    }
    for (const auto& [update, slot] : missing) {
      const std::vector<std::int64_t> loops(program_.loops.size());
      findings.Add({Rule::lost_update, program_.role_index, nodes[update], 0},
                   fmt::format("{}: what the host has updated is not copied to the device",
                               DescribeNode(program_, nodes[update], loops)));
    }
  }

 private:
  /// An update by number, and which of the parameters' slots that it writes; what is made of masters stands for all of
  /// an update that writes no parameter.
  using Update = std::pair<std::size_t, std::size_t>;
  using Updates = std::set<Update>;
  static constexpr std::size_t kMasters = SIZE_MAX;

  bool IsParameter(const BufferRef& ref) const {
    return program_.buffers[ref.buffer.index].category == Category::parameter;
  }

  static void Erase(const Updates& updates, Updates& missing) {
    std::for_each(updates.begin(), updates.end(), [&](const Update& update) { missing.erase(update); });
  }

  std::size_t SlotOf(const BufferRef& ref, std::span<const std::int64_t> loops) const {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    const std::int64_t index = Resolve(ref.index[0], loops) * buffer.extents[1] + Resolve(ref.index[1], loops);
    return first_slot_[ref.buffer.index] + static_cast<std::size_t>(index);
  }

  /// What is read is in what is written; what reaches the device is missing no more.
  void Hand(const std::vector<BufferRef>& reads, const std::vector<BufferRef>& writes,
            std::span<const std::int64_t> loops, Updates& missing) {
    Updates updates;
    const bool to_device = !writes.empty() && std::none_of(writes.begin(), writes.end(), [&](const BufferRef& ref) {
      return IsOnHost(program_, ref);
    });
    for (const BufferRef& ref : reads) {
      const std::size_t slot = SlotOf(ref, loops);
      if (const auto found = contains_.find(slot); found != contains_.end()) {
        updates.insert(found->second.begin(), found->second.end());
      } else if (to_device && program_.buffers[ref.buffer.index].kept) {
        brought_.insert(slot);
      }
    }
    for (const BufferRef& ref : writes) {
      if (IsOnHost(program_, ref)) {
        contains_[SlotOf(ref, loops)] = updates;
      } else {
        Erase(updates, missing);
      }
    }
  }

  const Program& program_;
  std::vector<std::size_t> first_slot_;
  std::size_t slots_ = 0;
  std::map<std::size_t, Updates> contains_;  ///< by slot of the host's memory
  std::set<std::size_t> brought_;            ///< slots that were copied to the device as the step before had left them
};

}  // namespace

void CheckPlaces(const Program& program, Findings& findings) {
  for (std::size_t at = 0; at < program.nodes.size(); ++at) {
    const Node& node = program.nodes[at];
    if (std::holds_alternative<Copy>(node) || std::holds_alternative<Alloc>(node) ||
        std::holds_alternative<Free>(node) || JoinsHosts(program, node)) {
      continue;
    }
    ForEachAccess(node, [&](const BufferRef& ref, Access) {
      if (IsOnHost(program, ref) && !RunsOnHost(node)) {
        findings.Add({Rule::wrong_place, program.role_index, at, ref.buffer.index},
                     fmt::format("{}: {} touches {}, which lies in memory of the host", program.role,
                                 ShortName(program, node), program.buffers[ref.buffer.index].name));
      }
    });
  }
}

void CheckHostUpdates(const Program& program, Findings& findings) {
  if (std::any_of(program.nodes.begin(), program.nodes.end(), RunsOnHost)) {
    UpdateFollower(program).Run(findings);
  }
}

}  // namespace tidemark
