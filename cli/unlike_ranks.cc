// SPDX-License-Identifier: Apache-2.0
#include "cli/unlike_ranks.h"

#include <algorithm>

#include "sim/lower/lower.h"
#include "sim/program/text.h"

namespace tidemark {

bool RanksAreUnlike(const Job& job) {
  const std::int64_t ranks = job.layout.dp / job.axes.shard.replicas;
  if (ranks == 1) {
    return false;
  }
  const Result<StepProgram> first = Lower(job, StepKind::steady);
  const Result<StepProgram> last = Lower(job, StepKind::steady, {}, ranks - 1);
  return first.ok() && last.ok() &&
         !std::equal(first->roles.begin(), first->roles.end(), last->roles.begin(), last->roles.end(),
                     [](const Program& a, const Program& b) { return Print(a) == Print(b); });
}

}  // namespace tidemark
