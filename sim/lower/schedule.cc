// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/schedule.h"

#include <algorithm>

namespace tidemark {
namespace {

std::vector<SlotRun> CachedSchedule(std::int64_t chunks) {
  std::vector<SlotRun> runs;
  for (const std::int64_t side : {0, 1}) {
    runs.push_back({chunks, {{Pass::load, side * chunks, side}}});
  }
  for (const std::int64_t side : {0, 1}) {
    runs.push_back({chunks, {{Pass::represent, side * chunks, side}}});
    runs.push_back({1, {{Pass::join, side * chunks, side}}});
  }
  runs.push_back({1, {{Pass::loss, 0}}});
  for (const std::int64_t side : {0, 1}) {
    runs.push_back({chunks, {{Pass::again, side * chunks, side}, {Pass::surrogate, side * chunks, side}}});
  }
  return runs;
}

}  // namespace

std::vector<SlotRun> ScheduleOf(const Job& job, std::int64_t stage, std::int64_t stages) {
  const std::int64_t microbatches = job.Microbatches();
  if (job.CachesRepresentations()) {
    return CachedSchedule(microbatches);
  }
  if (job.axes.gradient_flow == GradientFlow::single_backward) {
    return {{microbatches, {{Pass::forward, 0}}}, {microbatches, {{Pass::backward, 0}}, true}};
  }
  const bool all_forwards_first = job.schedule == Schedule::gpipe && stages > 1;
  const std::int64_t warm_up = all_forwards_first ? microbatches : std::min(stages - stage - 1, microbatches);
  return {
      {warm_up, {{Pass::forward, 0}}},
      {microbatches - warm_up, {{Pass::forward, warm_up}, {Pass::backward, 0}}},
      {warm_up, {{Pass::backward, microbatches - warm_up}}},
  };
}

}  // namespace tidemark
