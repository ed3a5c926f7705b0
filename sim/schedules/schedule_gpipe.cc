// SPDX-License-Identifier: Apache-2.0
#include "sim/schedules/pipeline_schedule.h"

namespace tidemark {
namespace {

std::vector<SlotRun> Order(const PipelineRank& rank) {
  return {{rank.microbatches, {{Pass::forward, 0}}}, {rank.microbatches, {{Pass::backward, 0}}}};
}

}  // namespace

/// GPipe (arXiv 1811.06965; nanotron's AFAB): all microbatches are in flight at once.
std::vector<PipelineSchedule> ScheduleGpipe() {
  return {{.kind = Schedule::gpipe,
           .name = "gpipe",
           .summary = "all forward passes, then all backward passes",
           .chunks = OneChunk,
           .place = OnePerRank,
           .order = Order,
           .refuse = AcceptOneChunk}};
}

}  // namespace tidemark
