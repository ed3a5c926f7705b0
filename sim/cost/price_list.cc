// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/price_list.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <variant>

#include "sim/cost/cost.h"

namespace tidemark {
namespace {

/// Two leaves, each with its program.
struct SamePrice {
  const Program& program;
  const Program& other_program;
  const Node& other;

  bool operator()(const Compute& a) const {
    const auto& b = std::get<Compute>(other);
    return a.op == b.op && (a.stream.index == 0) == (b.stream.index == 0) && a.beside_collective == b.beside_collective;
  }
  bool operator()(const Collective& a) const {
    const auto& b = std::get<Collective>(other);
    const Group& group = program.groups[a.group.index];
    const Group& other_group = other_program.groups[b.group.index];
    return a.kind == b.kind && a.payload() == b.payload() && group.size == other_group.size &&
           group.ranks_per_node == other_group.ranks_per_node;
  }
  bool operator()(const Send& a) const {
    const auto& b = std::get<Send>(other);
    return program.channels[a.channel.index].crosses_nodes == other_program.channels[b.channel.index].crosses_nodes &&
           BytesOf(program, a.buffer) == BytesOf(other_program, b.buffer);
  }
  bool operator()(const Copy& a) const { return a.bytes == std::get<Copy>(other).bytes; }
  bool operator()(const Scale& a) const {
    const auto& b = std::get<Scale>(other);
    return program.buffers[a.buffer.buffer.index].elements == other_program.buffers[b.buffer.buffer.index].elements &&
           BytesOf(program, a.buffer) == BytesOf(other_program, b.buffer);
  }
  /// All others take no time.
  template <class Other>
  bool operator()(const Other&) const {
    return true;
  }

  static Bytes BytesOf(const Program& program, const BufferRef& ref) {
    return program.buffers[ref.buffer.index].bytes();
  }
};

/// The name of a leaf that takes time; not valid: it takes none.
NameId NameOf(const Node& node) {
  return std::visit(
      [](const auto& leaf) {
        using Leaf = std::decay_t<decltype(leaf)>;
        if constexpr (std::is_same_v<Leaf, Compute> || std::is_same_v<Leaf, Collective> || std::is_same_v<Leaf, Send> ||
                      std::is_same_v<Leaf, Copy> || std::is_same_v<Leaf, Scale>) {
          return leaf.name;
        } else {
          return NameId{};
        }
      },
      node);
}

}  // namespace

PriceList::PriceList(const StepProgram& step) {
  // Nodes that cost the same mostly have the same name.
  std::unordered_map<std::string_view, std::vector<std::uint32_t>> by_name;
  std::uint32_t nothing = UINT32_MAX;
  for (std::size_t role = 0; role < step.roles.size(); ++role) {
    const Program& program = step.roles[role];
    std::vector<std::vector<std::uint32_t>*> known(program.names.size());
    std::vector<std::uint32_t>& which = which_.emplace_back();
    which.reserve(program.nodes.size());
    const auto add = [&](std::size_t node) {
      distinct_.push_back({role, node});
      return static_cast<std::uint32_t>(distinct_.size() - 1);
    };
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      const NameId name = NameOf(node);
      if (!name.valid()) {
        nothing = nothing == UINT32_MAX ? add(i) : nothing;
        which.push_back(nothing);
        continue;
      }
      std::vector<std::uint32_t>*& alike = known[name.index];
      alike = alike == nullptr ? &by_name[program.names[name.index]] : alike;
      const auto same = std::ranges::find_if(*alike, [&](std::uint32_t index) {
        const Program& other = step.roles[distinct_[index].role];
        const Node& other_node = other.nodes[distinct_[index].node];
        return node.index() == other_node.index() && std::visit(SamePrice{program, other, other_node}, node);
      });
      which.push_back(same != alike->end() ? *same : alike->emplace_back(add(i)));
    }
  }
}

std::vector<Nanos> PriceList::Price(const StepProgram& step, const Machine& machine) const {
  const std::int64_t ranks_on_node = RanksOnNode(step, machine);
  std::vector<Nanos> prices;
  prices.reserve(distinct_.size());
  for (const Place& place : distinct_) {
    const Program& program = step.roles[place.role];
    prices.push_back(NodeTime(program, program.nodes[place.node], machine, ranks_on_node));
  }
  return prices;
}

}  // namespace tidemark
