// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/cost.h"

namespace tidemark {
namespace {

struct DeviceTime {
  const Program& program;
  const Machine& machine;

  Nanos operator()(const Compute& leaf) const { return KernelTime(leaf.op, machine, leaf.beside_collective); }

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
    return KernelTime(Pointwise{.elements = buffer.elements, .bytes_moved = 2 * buffer.bytes().count()}, machine,
                      false);
  }

  /// Takes no device time.
  template <class Other>
  Nanos operator()(const Other&) const {
    return Nanos(0);
  }
};

}  // namespace

Costs Price(const Program& program, const Machine& machine) {
  Costs costs{.device = {}, .host_issue = machine.host_issue};
  costs.device.reserve(program.nodes.size());
  for (const Node& node : program.nodes) {
    costs.device.push_back(std::visit(DeviceTime{program, machine}, node));
  }
  return costs;
}

std::vector<Costs> PriceAll(const StepProgram& step, const Machine& machine) {
  std::vector<Costs> costs;
  for (const Program& program : step.roles) {
    costs.push_back(Price(program, machine));
  }
  return costs;
}

}  // namespace tidemark
