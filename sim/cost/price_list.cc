// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/price_list.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>

#include "sim/cost/cost.h"
#include "sim/cost/overlap.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

/// Two leaves, each with its program.
struct SamePrice {
  const Program& program;
  const Program& other_program;
  const Node& other;

  bool operator()(const Compute& a) const {
    const auto& b = std::get<Compute>(other);
    return a.op == b.op && (a.stream.index == 0) == (b.stream.index == 0);
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
  AddAlone(step);
  AddFlying(step);
}

void PriceList::AddAlone(const StepProgram& step) {
  // Nodes that cost the same mostly have the same name.
  std::unordered_map<std::string_view, std::vector<std::uint32_t>> by_name;
  std::uint32_t nothing = UINT32_MAX;
  for (std::size_t role = 0; role < step.roles.size(); ++role) {
    const Program& program = step.roles[role];
    std::vector<std::vector<std::uint32_t>*> known(program.names.size());
    std::vector<std::uint32_t>& which = which_.emplace_back();
    which.reserve(program.nodes.size());
    const auto add = [&](std::size_t node) {
      alone_.push_back({role, node});
      return static_cast<std::uint32_t>(alone_.size() - 1);
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
        const Program& other = step.roles[alone_[index].role];
        const Node& other_node = other.nodes[alone_[index].node];
        return node.index() == other_node.index() && std::visit(SamePrice{program, other, other_node}, node);
      });
      which.push_back(same != alike->end() ? *same : alike->emplace_back(add(i)));
    }
  }
}

void PriceList::AddFlying(const StepProgram& step) {
  // Places in a list, by `alone` and `of`.
  using Known = std::unordered_map<std::uint64_t, std::uint32_t>;
  Known collectives, kernels;
  const auto add = [](std::vector<Flying>& list, Known& known, std::uint32_t alone, std::uint32_t of,
                      std::int64_t times) {
    const std::uint64_t key = (std::uint64_t{alone} << 32) + of;
    const auto [at, added] = known.try_emplace(key, static_cast<std::uint32_t>(list.size()));
    if (added) {
      list.push_back({alone, of});
    }
    list[at->second].times += times;
    return at->second;
  };
  std::uint32_t first = 0;  // flight of the role
  for (std::size_t role = 0; role < step.roles.size(); ++role) {
    const Program& program = step.roles[role];
    const auto first_set = static_cast<std::uint32_t>(flight_sets_.size());
    for (std::vector<FlightId> flights : program.flight_sets) {
      for (FlightId& flight : flights) {
        flight.index += first;
      }
      flight_sets_.push_back(std::move(flights));
    }
    std::uint32_t end = first;
    ForEachLeafAndTimes(program, [&](std::size_t node, std::int64_t times) {
      std::uint32_t& which = which_[role][node];
      if (const auto* compute = std::get_if<Compute>(&program.nodes[node])) {
        if (compute->beside.valid()) {
          which = static_cast<std::uint32_t>(alone_.size()) +
                  add(kernels_, kernels, which, first_set + compute->beside.index, times);
        }
      } else if (const auto* collective = std::get_if<Collective>(&program.nodes[node]);
                 collective != nullptr && collective->flight.valid()) {
        end = std::max(end, first + collective->flight.index + 1);
        add(collectives_, collectives, which, first + collective->flight.index, times);
      }
    });
    first = end;
  }
}

std::vector<Nanos> PriceList::Price(const StepProgram& step, const Machine& machine) const {
  const std::int64_t ranks_on_node = RanksOnNode(step, machine);
  std::vector<Nanos> prices;
  prices.reserve(alone_.size() + kernels_.size());
  std::vector<double> seconds(alone_.size());  // of kernels on the device
  for (std::size_t i = 0; i < alone_.size(); ++i) {
    const Program& program = step.roles[alone_[i].role];
    const Node& node = program.nodes[alone_[i].node];
    if (const auto* compute = std::get_if<Compute>(&node); compute != nullptr && compute->stream.index != 0) {
      seconds[i] = KernelSeconds(compute->op, machine);
      prices.push_back(RoundToNanos(seconds[i]));
    } else {
      prices.push_back(NodeTime(program, node, machine, ranks_on_node));
    }
  }
  Overlap overlap;
  for (const Flying& collective : collectives_) {
    overlap.AddCollective(FlightId{collective.of}, prices[collective.alone] * collective.times);
  }
  for (const Flying& kernel : kernels_) {
    overlap.AddKernel(flight_sets_[kernel.of], prices[kernel.alone] * kernel.times);
  }
  std::vector<double> ratios;  // by set
  for (const std::vector<FlightId>& flights : flight_sets_) {
    ratios.push_back(overlap.CollectivesOverKernels(flights));
  }
  for (const Flying& kernel : kernels_) {
    prices.push_back(TimeBeside(ratios[kernel.of], seconds[kernel.alone], machine));
  }
  return prices;
}

}  // namespace tidemark
