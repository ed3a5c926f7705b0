// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/updated_parameters.h"

#include <numeric>
#include <utility>

#include "sim/strategies/parameter_table.h"

namespace tidemark {

std::vector<std::int64_t> UpdatedSizes(const Job& job, const Block& block) {
  const std::int64_t ranks = job.axes.shard.optimizer ? job.layout.GradientRanks() : 1;
  std::vector<std::int64_t> sizes;
  for (const Parameter& parameter : block.parameters) {
    if (IsTrained(parameter)) {
      sizes.push_back(CeilDiv(parameter.elements, ranks));
    }
  }
  return sizes;
}

std::int64_t UpdatedElements(const Job& job, const Block& block) {
  const std::vector<std::int64_t> sizes = UpdatedSizes(job, block);
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

std::vector<Holding> HoldsUpdated(const Role& role, std::int64_t position) {
  if (!role.job.axes.shard.optimizer) {
    return {};
  }
  return {{.cut = Cut::elements,
           .ranks = role.job.layout.GradientRanks(),
           .of = {{role.stage.BlockAt(position).name, role.InRun(position)}}}};
}

std::vector<Holding> HoldsUpdatedOfRuns(const Role& role) {
  std::vector<Holding> holds;
  for (const std::int64_t first : role.stage.first) {
    for (Holding& holding : HoldsUpdated(role, first)) {
      holds.push_back(std::move(holding));
    }
  }
  return holds;
}

void GatherUpdated(Role& role, StreamId stream, GroupId group, std::int64_t elements, std::vector<BufferRef> parts,
                   std::vector<BufferRef> whole) {
  role.builder.Emit(Collective{role.builder.Named("gather updated parameters"), CollectiveKind::all_gather,
                               Reduction::none, Rational(1), group, role.job.axes.precision.params, elements, stream,
                               std::move(parts), std::move(whole)});
}

}  // namespace tidemark
