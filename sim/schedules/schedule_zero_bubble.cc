// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/schedules/pipeline_schedule.h"

namespace tidemark {
namespace {

/// Rank r warms up with `depth` * (p - r - 1) forward passes and runs its weight passes `depth` * r microbatches
/// behind: every rank then holds `depth` * (p - 1) + 1 microbatches, in flight or waiting for their weight pass.
std::vector<SlotRun> Order(const PipelineRank& rank, std::int64_t depth) {
  const std::int64_t m = rank.microbatches;
  const std::int64_t warm_up = std::min(depth * (rank.ranks - rank.rank - 1), m);
  const std::int64_t behind = std::min(depth * rank.rank, m);
  std::vector<SlotRun> runs{{warm_up, {{Pass::forward, 0}}}};
  for (std::int64_t i = 0; i < m;) {
    const bool forwards = i < m - warm_up, weights = i >= behind;
    std::int64_t end = m;
    end = forwards ? std::min(end, m - warm_up) : end;
    end = weights ? end : std::min(end, behind);
    SlotRun run{end - i, {}};
    if (forwards) {
      run.slots.push_back({Pass::forward, warm_up + i});
    }
    run.slots.push_back({Pass::backward_input, i});
    if (weights) {
      run.slots.push_back({Pass::backward_weight, i - behind});
    }
    runs.push_back(std::move(run));
    i = end;
  }
  runs.push_back({behind, {{Pass::backward_weight, m - behind}}});
  return runs;
}

}  // namespace

/// ZB-H1 and ZB-H2, the handcrafted schedules of arXiv 2401.10241, section 2.
std::vector<PipelineSchedule> ScheduleZeroBubble() {
  return {
      {.kind = Schedule::zb_h1,
       .name = "zb-h1",
       .summary =
           "1F1B with weight gradients moved into the bubble; every rank holds as many microbatches as the first",
       .chunks = OneChunk,
       .place = OnePerRank,
       .order = [](const PipelineRank& rank) { return Order(rank, 1); },
       .refuse = AcceptOneChunk},
      {.kind = Schedule::zb_h2,
       .name = "zb-h2",
       .summary = "as zb-h1, with twice as many microbatches in flight: no rank idles between its first and last pass",
       .chunks = OneChunk,
       .place = OnePerRank,
       .order = [](const PipelineRank& rank) { return Order(rank, 2); },
       .refuse = AcceptOneChunk}};
}

}  // namespace tidemark
