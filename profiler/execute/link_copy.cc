// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/link_copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "profiler/execute/operation.h"
#include "profiler/execute/state_rows.h"
#include "sim/program/stages.h"

namespace tidemark {

std::optional<Compute> LinkCopy(const Copy& leaf) {
  if (leaf.reads.empty()) {
    return std::nullopt;
  }
  return Compute{
      leaf.name,  Pointwise{.bytes_moved = leaf.bytes.count()}, leaf.stream, Work::compute, Rational(1), leaf.reads,
      leaf.writes};
}

Status CheckLinkCopies(const Program& program) {
  for (const Node& node : program.nodes) {
    const auto* copy = std::get_if<Copy>(&node);
    if (copy == nullptr || copy->reads.empty()) {
      continue;
    }
    const std::string_view name = WithoutStage(program.names[copy->name.index]);
    if (std::none_of(kStateRows.begin(), kStateRows.end(), [&](const StateRow& row) { return row.name == name; })) {
      return NotExecuted(fmt::format("'{}', a copy between host and device (optimizer_step.offload)", name));
    }
  }
  return Done{};
}

}  // namespace tidemark
