// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/communication.h"

#include <map>
#include <set>
#include <tuple>

namespace tidemark {
namespace {

/// Calls `visit(leaf, times)` for every leaf, `times` being the product of the counts of the loops around it.
template <class Visit>
void ForEachLeaf(const std::vector<Node>& nodes, std::size_t at, std::size_t end, std::int64_t times, Visit visit) {
  while (at < end) {
    const Node& node = nodes[at++];
    if (const auto* repeat = std::get_if<Repeat>(&node)) {
      ForEachLeaf(nodes, at, at + repeat->size, times * repeat->count, visit);
      at += repeat->size;
    } else {
      visit(node, times);
    }
  }
}

}  // namespace

std::vector<CommunicationRow> CountCommunication(const Program& program) {
  std::map<std::tuple<std::string, std::string, DType>, CommunicationRow> rows;
  const auto add = [&](std::string_view kind, const std::string& group, DType dtype, std::int64_t times, Bytes payload,
                       Bytes wire) {
    CommunicationRow& row = rows[{std::string(kind), group, dtype}];
    row.kind = kind;
    row.group = group;
    row.dtype = dtype;
    row.count += times;
    row.payload += payload * times;
    row.wire += wire * times;
  };
  ForEachLeaf(program.nodes, 0, program.nodes.size(), 1, [&](const Node& node, std::int64_t times) {
    if (const auto* collective = std::get_if<Collective>(&node)) {
      const Group& group = program.groups[collective->group.index];
      add(Name(collective->kind), group.name, collective->dtype, times, collective->payload(),
          WireBytes(collective->kind, collective->payload(), group.size));
    } else if (const auto* send = std::get_if<Send>(&node)) {
      const Buffer& buffer = program.buffers[send->buffer.buffer.index];
      add("send", "pp", buffer.dtype, times, buffer.bytes(), buffer.bytes());
    } else if (const auto* recv = std::get_if<Recv>(&node)) {
      const Buffer& buffer = program.buffers[recv->buffer.buffer.index];
      add("recv", "pp", buffer.dtype, times, buffer.bytes(), buffer.bytes());
    }
  });
  std::vector<CommunicationRow> ordered;
  for (auto& [key, row] : rows) {
    ordered.push_back(std::move(row));
  }
  return ordered;
}

std::int64_t CountCommunicators(const Program& program) {
  std::set<std::string_view> groups;
  for (const Node& node : program.nodes) {
    if (const auto* collective = std::get_if<Collective>(&node)) {
      groups.insert(program.groups[collective->group.index].name);
    } else if (std::holds_alternative<Send>(node) || std::holds_alternative<Recv>(node)) {
      groups.insert("pp");
    }
  }
  return std::ssize(groups);
}

ProgramFlops CountFlops(const Program& program) {
  ProgramFlops flops;
  ForEachLeaf(program.nodes, 0, program.nodes.size(), 1, [&](const Node& node, std::int64_t times) {
    const auto* compute = std::get_if<Compute>(&node);
    if (compute == nullptr ||
        !(std::holds_alternative<Gemm>(compute->op) || std::holds_alternative<Attention>(compute->op) ||
          std::holds_alternative<InfoNce>(compute->op) || std::holds_alternative<Tabulated>(compute->op))) {
      return;
    }
    const double all = static_cast<double>(FlopsOf(compute->op).count()) * static_cast<double>(times);
    flops.hardware += all;
    const auto* attention = std::get_if<Attention>(&compute->op);
    const bool repeats_scores = attention != nullptr && attention->backward;
    if (compute->work == Work::compute) {
      flops.model += repeats_scores ? all * 0.8 : all;
    }
  });
  return flops;
}

std::int64_t CountLeaves(const Program& program) {
  std::int64_t leaves = 0;
  ForEachLeaf(program.nodes, 0, program.nodes.size(), 1, [&](const Node&, std::int64_t times) { leaves += times; });
  return leaves;
}

}  // namespace tidemark
