// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/schedules/pipeline_schedule.h"

namespace tidemark {
namespace {

std::vector<SlotRun> Order(const PipelineRank& rank) {
  const std::int64_t warm_up = std::min(rank.ranks - rank.rank - 1, rank.microbatches);
  return {
      {warm_up, {{Pass::forward, 0}}},
      {rank.microbatches - warm_up, {{Pass::forward, warm_up}, {Pass::backward, 0}}},
      {warm_up, {{Pass::backward, rank.microbatches - warm_up}}},
  };
}

}  // namespace

/// PipeDream-Flush (arXiv 2006.09503): min(m, p - r - 1) forward passes to warm up, then one forward and one backward
/// pass in turn, then the rest: min(m, p - r) microbatches in flight.
std::vector<PipelineSchedule> Schedule1f1b() {
  return {{.kind = Schedule::one_f_one_b,
           .name = "1f1b",
           .summary = "one forward and one backward pass in turn",
           .chunks = OneChunk,
           .place = OnePerRank,
           .order = Order,
           .refuse = AcceptOneChunk}};
}

}  // namespace tidemark
