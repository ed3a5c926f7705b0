// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/communication.h"

#include <map>
#include <set>
#include <tuple>

#include "sim/program/walk.h"

namespace tidemark {

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
  ForEachLeafAndTimes(program, [&](std::size_t at, std::int64_t times) {
    const Node& node = program.nodes[at];
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

/// What an operation makes for the first time: a flash kernel's backward pass makes the scores again, one of its five
/// products (models/network/operator.cc).
double ModelShare(const Operator& op) {
  const auto* attention = std::get_if<Attention>(&op);
  if (attention == nullptr || !attention->backward) {
    return 1;
  }
  const auto scores = static_cast<double>(attention->head_size), values = static_cast<double>(attention->value_size());
  return (2 * scores + 2 * values) / (3 * scores + 2 * values);
}

ProgramFlops CountFlops(const Program& program) {
  ProgramFlops flops;
  ForEachLeafAndTimes(program, [&](std::size_t at, std::int64_t times) {
    const Node& node = program.nodes[at];
    const auto* compute = std::get_if<Compute>(&node);
    if (compute == nullptr ||
        !(std::holds_alternative<Gemm>(compute->op) || std::holds_alternative<Attention>(compute->op) ||
          std::holds_alternative<InfoNce>(compute->op) || std::holds_alternative<Tabulated>(compute->op))) {
      return;
    }
    const double all = static_cast<double>(FlopsOf(compute->op).count()) * static_cast<double>(times);
    flops.hardware += all;
    if (compute->work == Work::compute) {
      flops.model += all * ModelShare(compute->op);
    }
  });
  return flops;
}

std::int64_t CountLeaves(const Program& program) {
  std::int64_t leaves = 0;
  ForEachLeafAndTimes(program, [&](std::size_t, std::int64_t times) { leaves += times; });
  return leaves;
}

}  // namespace tidemark
