// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/updated_parameters.h"

#include <utility>

namespace tidemark {

std::int64_t UpdatedElements(const Job& job, const Block& block) {
  const std::int64_t elements = TrainableElements(block);
  return job.axes.shard.optimizer ? CeilDiv(elements, job.layout.dp) : elements;
}

void GatherUpdated(Role& role, StreamId stream, GroupId group, std::int64_t elements, std::vector<BufferRef> parts,
                   std::vector<BufferRef> whole) {
  role.builder.Emit(Collective{role.builder.Named("gather updated parameters"), CollectiveKind::all_gather,
                               Reduction::none, Rational(1), group, role.job.axes.precision.params, elements, stream,
                               std::move(parts), std::move(whole)});
}

}  // namespace tidemark
