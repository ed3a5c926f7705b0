// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "models/job/validate.h"
#include "sim/schedules/pipeline_schedule.h"

namespace tidemark {
namespace {

PipelinePlace Place(const PipelineRank& rank, std::int64_t chunk) {
  const std::int64_t stage = chunk * rank.ranks + rank.rank, stages = rank.chunks * rank.ranks;
  return {stage,
          stages,
          rank.rank,
          stage == 0 ? -1 : (rank.rank + rank.ranks - 1) % rank.ranks,
          stage + 1 == stages ? -1 : (rank.rank + 1) % rank.ranks,
          0};
}

/// Passes are numbered over all chunks: p microbatches through chunk 0, the same p through chunk 1, ..., then the next
/// p. Backward passes take the chunks in the opposite order.
class VirtualPasses {
 public:
  explicit VirtualPasses(const PipelineRank& rank) : rank_(rank), period_(rank.ranks * rank.chunks) {}

  std::int64_t period() const { return period_; }
  std::int64_t count() const { return rank_.microbatches * rank_.chunks; }
  Slot Forward(std::int64_t number) const { return {Pass::forward, Microbatch(number), 0, Chunk(number)}; }
  Slot Backward(std::int64_t number) const {
    return {Pass::backward, Microbatch(number), 0, rank_.chunks - 1 - Chunk(number)};
  }

 private:
  std::int64_t Chunk(std::int64_t number) const { return number % period_ / rank_.ranks; }
  std::int64_t Microbatch(std::int64_t number) const { return number / period_ * rank_.ranks + number % rank_.ranks; }

  PipelineRank rank_;
  std::int64_t period_;
};

/// Writes `slots(number)` for `count` numbers: whole periods as one run, what is left as single passes.
template <class SlotsAt>
void Append(std::vector<SlotRun>& runs, const PipelineRank& rank, const VirtualPasses& passes, std::int64_t count,
            SlotsAt slots_at) {
  const auto run = [&](std::int64_t iterations, std::int64_t first, std::int64_t end) {
    SlotRun written{iterations, {}, rank.ranks};
    for (std::int64_t number = first; number < end; ++number) {
      for (const Slot& slot : slots_at(number)) {
        written.slots.push_back(slot);
      }
    }
    if (!written.slots.empty()) {
      runs.push_back(std::move(written));
    }
  };
  const std::int64_t periods = count / passes.period();
  if (periods > 0) {
    run(periods, 0, passes.period());
  }
  run(1, periods * passes.period(), count);
}

std::vector<SlotRun> Order(const PipelineRank& rank) {
  const VirtualPasses passes(rank);
  const std::int64_t warm_up =
      std::min((rank.ranks - rank.rank - 1) * 2 + (rank.chunks - 1) * rank.ranks, passes.count());
  const std::int64_t steady = passes.count() - warm_up;
  std::vector<SlotRun> runs;
  Append(runs, rank, passes, warm_up, [&](std::int64_t i) { return std::vector<Slot>{passes.Forward(i)}; });
  Append(runs, rank, passes, steady, [&](std::int64_t i) {
    return std::vector<Slot>{passes.Forward(warm_up + i), passes.Backward(i)};
  });
  Append(runs, rank, passes, warm_up, [&](std::int64_t i) { return std::vector<Slot>{passes.Backward(steady + i)}; });
  return runs;
}

Status Refuse(const Job& job) {
  if (job.layout.vpp < 2) {
    return BadKey("layout.vpp", "an interleaved pipeline needs at least two model chunks per rank",
                  "set layout.vpp to 2 or more, or schedule to 1f1b");
  }
  const std::int64_t microbatches = job.Microbatches() / job.Flushes();
  if (microbatches % job.layout.pp != 0) {
    return BadKey(FlushKey(job),
                  fmt::format("the interleaved schedule takes microbatches in groups of {} (layout.pp), and {} is no "
                              "multiple of that",
                              job.layout.pp, microbatches),
                  HowToFill(job, fmt::format("a multiple of {}", job.layout.pp)));
  }
  return Done{};
}

}  // namespace

/// Interleaved 1F1B (arXiv 2104.04473, section 2.2; megatron/core/pipeline_parallel/schedules.py): each rank holds
/// `layout.vpp` model chunks; (p - r - 1) * 2 + (v - 1) * p forward passes to warm up.
std::vector<PipelineSchedule> ScheduleInterleaved() {
  return {{.kind = Schedule::interleaved,
           .name = "interleaved",
           .summary = "1F1B over several model chunks per rank: a smaller bubble, more in flight",
           .chunks = [](const Layout& layout) { return layout.vpp; },
           .place = Place,
           .order = Order,
           .refuse = Refuse}};
}

}  // namespace tidemark
