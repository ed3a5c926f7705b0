// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/schedule.h"

#include <algorithm>

namespace tidemark {

std::vector<SlotRun> ScheduleOf(const Job& job, std::int64_t stage, std::int64_t stages) {
  const std::int64_t microbatches = job.Microbatches();
  if (job.axes.gradient_flow == GradientFlow::single_backward) {
    return {{microbatches, {{true, 0}}}, {microbatches, {{false, 0}}, true}};
  }
  const bool all_forwards_first = job.schedule == Schedule::gpipe && stages > 1;
  const std::int64_t warm_up = all_forwards_first ? microbatches : std::min(stages - stage - 1, microbatches);
  return {
      {warm_up, {{true, 0}}},
      {microbatches - warm_up, {{true, warm_up}, {false, 0}}},
      {warm_up, {{false, microbatches - warm_up}}},
  };
}

}  // namespace tidemark
