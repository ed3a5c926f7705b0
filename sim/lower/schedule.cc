// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/schedule.h"

#include <algorithm>

namespace tidemark {

std::vector<SlotRun> ScheduleOf(Schedule schedule, std::int64_t stage, std::int64_t stages, std::int64_t microbatches) {
  const bool all_forwards_first = schedule == Schedule::gpipe && stages > 1;
  const std::int64_t warm_up = all_forwards_first ? microbatches : std::min(stages - stage - 1, microbatches);
  return {
      {warm_up, {{true, 0}}},
      {microbatches - warm_up, {{true, warm_up}, {false, 0}}},
      {warm_up, {{false, microbatches - warm_up}}},
  };
}

}  // namespace tidemark
