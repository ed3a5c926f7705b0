// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/schedule.h"

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

/// Whether stages are held twice, each for one half of the microbatches.
bool RunsBothWays(const Job& job) { return job.layout.pp > 1 && ScheduleOf(job.schedule).both_ways; }

}  // namespace

std::vector<SlotRun> SlotsOf(const Job& job, const std::vector<Stage>& chunks) {
  const std::int64_t microbatches = job.Microbatches();
  if (job.CachesRepresentations()) {
    return CachedSchedule(microbatches);
  }
  if (job.axes.gradient_flow == GradientFlow::single_backward) {
    return {{microbatches, {{Pass::forward, 0}}}, {microbatches, {{Pass::backward, 0}}, 1, true}};
  }
  if (job.layout.pp == 1) {
    return {{microbatches, {{Pass::forward, 0}, {Pass::backward, 0}}}};
  }
  const std::int64_t flushes = job.Flushes(), of_flush = microbatches / flushes;
  const std::vector<SlotRun> flush =
      ScheduleOf(job.schedule)
          .order({chunks.front().place.rank, job.layout.pp, static_cast<std::int64_t>(chunks.size()), of_flush});
  std::vector<SlotRun> runs;
  for (std::int64_t i = 0; i < flushes; ++i) {
    for (SlotRun run : flush) {
      for (Slot& slot : run.slots) {
        slot.offset += i * of_flush;
      }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

std::int64_t MicrobatchesOfChunk(const Job& job) { return job.Microbatches() / (RunsBothWays(job) ? 2 : 1); }

std::int64_t OrderOf(const Job& job, const Stage& chunk, std::int64_t microbatch) {
  if (!RunsBothWays(job)) {
    return microbatch;
  }
  const std::int64_t of_flush = job.Microbatches() / job.Flushes();
  return microbatch / of_flush * (of_flush / 2) + microbatch % of_flush - chunk.place.direction * (of_flush / 2);
}

}  // namespace tidemark
