// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/cost/cost.h"
#include "sim/cost/overlap.h"

namespace tidemark {
namespace {

struct DeviceTime {
  const Program& program;
  const Machine& machine;
  std::int64_t ranks_on_node;

  Nanos operator()(const Compute& leaf) const {
    return leaf.stream.index == 0 ? HostTime(leaf.op, machine, ranks_on_node)
                                  : RoundToNanos(KernelSeconds(leaf.op, machine));
  }

  Nanos operator()(const Collective& leaf) const {
    return CollectiveTime(leaf.kind, leaf.payload(), program.groups.at(leaf.group.index), machine);
  }

  /// A message costs its sender; it has arrived when its Send ends.
  Nanos operator()(const Send& leaf) const {
    const Channel& channel = program.channels.at(leaf.channel.index);
    return MessageTime(program.buffers.at(leaf.buffer.buffer.index).bytes(), channel.crosses_nodes, machine);
  }

  Nanos operator()(const Copy& leaf) const {
    const Link& link = machine.host_link;
    return RoundToNanos(static_cast<double>(link.latency.count()) * 1e-9 + SecondsAt(leaf.bytes, link.bandwidth));
  }

  /// A kernel that reads and writes the buffer once.
  Nanos operator()(const Scale& leaf) const {
    const Buffer& buffer = program.buffers.at(leaf.buffer.buffer.index);
    return RoundToNanos(
        KernelSeconds(Pointwise{.elements = buffer.elements, .bytes_moved = 2 * buffer.bytes().count()}, machine));
  }

  /// Takes no device time.
  template <class Other>
  Nanos operator()(const Other&) const {
    return Nanos(0);
  }
};

Costs PriceBeside(const Program& program, const Machine& machine, std::int64_t ranks_on_node) {
  Costs costs{.device = {}, .host_issue = machine.host_issue, .streams_take_turns = !machine.overlap};
  costs.device.reserve(program.nodes.size());
  for (const Node& node : program.nodes) {
    costs.device.push_back(NodeTime(program, node, machine, ranks_on_node));
  }
  const Overlap overlap = OverlapOf(program, costs.device);
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const auto* compute = std::get_if<Compute>(&program.nodes[i]);
    if (compute != nullptr && compute->beside.valid()) {
      costs.device[i] = TimeBeside(overlap.CollectivesOverKernels(program.FlightsBeside(*compute)),
                                   KernelSeconds(compute->op, machine), machine);
    }
  }
  return costs;
}

}  // namespace

Nanos NodeTime(const Program& program, const Node& node, const Machine& machine, std::int64_t ranks_on_node) {
  return std::visit(DeviceTime{program, machine, ranks_on_node}, node);
}

std::int64_t RanksOnNode(const StepProgram& step, const Machine& machine) {
  std::int64_t ranks = 0;
  for (const Program& program : step.roles) {
    ranks += program.ranks;
  }
  return std::min(ranks, machine.devices_per_node);
}

Costs Price(const Program& program, const Machine& machine) {
  return PriceBeside(program, machine, std::min(program.ranks, machine.devices_per_node));
}

std::vector<Costs> PriceAll(const StepProgram& step, const Machine& machine) {
  const std::int64_t ranks_on_node = RanksOnNode(step, machine);
  std::vector<Costs> costs;
  for (const Program& program : step.roles) {
    costs.push_back(PriceBeside(program, machine, ranks_on_node));
  }
  return costs;
}

}  // namespace tidemark
