// SPDX-License-Identifier: Apache-2.0
#include "cli/unlike_ranks.h"

#include <algorithm>

#include "sim/lower/lower.h"
#include "sim/program/text.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

namespace {

/// Where the last one is like the first, some between them may not be: gaps between parameters fall to one of them.
constexpr std::int64_t kMostCompared = 8;

}  // namespace

bool RanksAreUnlike(const Job& job) {
  const std::int64_t ranks = job.layout.GradientRanks() / job.axes.shard.replicas;
  const Result<Strategy> strategy = FindStrategy(job.strategy);
  if (ranks == 1 || !strategy.ok() || !strategy->ranks_differ) {
    return false;
  }
  const Result<StepProgram> first = Lower(job, StepKind::steady);
  const auto is_unlike = [&](std::int64_t rank) {
    const Result<StepProgram> other = Lower(job, StepKind::steady, {}, rank);
    return first.ok() && other.ok() &&
           !std::equal(first->roles.begin(), first->roles.end(), other->roles.begin(), other->roles.end(),
                       [](const Program& a, const Program& b) { return Print(a) == Print(b); });
  };
  bool unlike = is_unlike(ranks - 1);
  for (std::int64_t rank = 1; rank < std::min(ranks - 1, kMostCompared) && !unlike; ++rank) {
    unlike = is_unlike(rank);
  }
  return unlike;
}

}  // namespace tidemark
