// SPDX-License-Identifier: Apache-2.0
#include "sim/schedules/pipeline_schedule.h"

#include <fmt/format.h>

namespace tidemark {

const char* FlushKey(const Job& job) {
  return job.pipeline_microbatches > 0                  ? "pipeline_microbatches"
         : job.Microbatches() != job.accumulation_steps ? "last_window.microbatches"
                                                        : "accumulation_steps";
}

std::string HowToFill(const Job& job, const std::string& microbatches) {
  const std::string key = FlushKey(job);
  return key == "last_window.microbatches" ? "set last_window.policy to carry-over"
                                           : fmt::format("set {} to {}", key, microbatches);
}

const std::vector<PipelineSchedule>& AllSchedules() {
  static const std::vector<PipelineSchedule> schedules = [] {
    std::vector<PipelineSchedule> all;
    for (std::vector<PipelineSchedule>& family : ScheduleFamilies()) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return schedules;
}

const PipelineSchedule& ScheduleOf(Schedule kind) {
  for (const PipelineSchedule& schedule : AllSchedules()) {
    if (schedule.kind == kind) {
      return schedule;
    }
  }
  TIDEMARK_CHECK(false && "a schedule without a file");
}

PipelinePlace OnePerRank(const PipelineRank& rank, std::int64_t) {
  return {rank.rank, rank.ranks, rank.rank, rank.rank - 1, rank.rank + 1 < rank.ranks ? rank.rank + 1 : -1, 0};
}

std::int64_t OneChunk(const Layout&) { return 1; }

Status AcceptOneChunk(const Job& job) {
  if (job.layout.vpp > 1) {
    return BadKey("layout.vpp", "only the interleaved schedule deals out several model chunks to a rank",
                  "set schedule to interleaved, or layout.vpp to 1");
  }
  return Done{};
}

}  // namespace tidemark
