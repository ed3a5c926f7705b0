// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "models/job/validate.h"
#include "sim/schedules/pipeline_schedule.h"

namespace tidemark {
namespace {

/// Chunk 0 of a rank is its stage of the pipeline that runs down the ranks, chunk 1 of the one that runs up.
PipelinePlace Place(const PipelineRank& rank, std::int64_t chunk) {
  const std::int64_t last = rank.ranks - 1;
  const std::int64_t stage = chunk == 0 ? rank.rank : last - rank.rank;
  const std::int64_t step = chunk == 0 ? 1 : -1;
  return {stage, rank.ranks, rank.rank, stage == 0 ? -1 : rank.rank - step, stage == last ? -1 : rank.rank + step,
          chunk};
}

/// Writes one rank's passes. "Near" is the direction in which the rank stands in the first half of the pipeline, "far"
/// the other one.
class Writer {
 public:
  explicit Writer(const PipelineRank& rank) : near_(rank.rank < rank.ranks / 2 ? 0 : 1), half_(rank.microbatches / 2) {}

  static constexpr std::int64_t kNear = 0, kFar = 1;

  Slot Forward(std::int64_t direction, bool held = false) {
    const std::int64_t chunk = ChunkOf(direction);
    return {Pass::forward, chunk * half_ + forwards_[At(chunk)]++, 0, chunk, held};
  }
  Slot Backward(std::int64_t direction) {
    const std::int64_t chunk = ChunkOf(direction);
    return {Pass::backward, chunk * half_ + backwards_[At(chunk)]++, 0, chunk};
  }
  /// Leaves the weight gradients for later.
  Slot BackwardInput(std::int64_t direction) {
    Slot slot = Backward(direction);
    waiting_.push_back(slot);
    slot.pass = Pass::backward_input;
    return slot;
  }
  /// Of the backward pass that has waited longest.
  Slot BackwardWeight() {
    Slot slot = waiting_.front();
    waiting_.pop_front();
    slot.pass = Pass::backward_weight;
    return slot;
  }

  void Once(std::vector<Slot> slots) { runs_.push_back({1, std::move(slots)}); }
  /// `count` times what `slots` says of the first time; each slot's microbatches come one after the other.
  template <class Slots>
  void Times(std::int64_t count, Slots slots) {
    if (count == 0) {
      return;
    }
    runs_.push_back({count, slots()});
    for (const Slot& slot : runs_.back().slots) {
      (slot.pass == Pass::forward ? forwards_ : backwards_)[At(slot.chunk)] += count - 1;
    }
  }

  std::vector<SlotRun> Runs() && { return std::move(runs_); }

 private:
  std::int64_t ChunkOf(std::int64_t direction) const { return direction == kNear ? near_ : 1 - near_; }
  static std::size_t At(std::int64_t chunk) { return static_cast<std::size_t>(chunk); }

  std::int64_t near_, half_;
  std::array<std::int64_t, 2> forwards_{}, backwards_{};
  std::deque<Slot> waiting_;
  std::vector<SlotRun> runs_;
};

std::vector<SlotRun> Order(const PipelineRank& rank) {
  constexpr std::int64_t kNear = Writer::kNear, kFar = Writer::kFar;
  const std::int64_t ranks = rank.ranks, half_ranks = ranks / 2;
  const std::int64_t from_end = std::min(rank.rank, ranks - 1 - rank.rank);
  const std::int64_t to_middle = half_ranks - from_end - 1;
  const bool middle = to_middle == 0;
  Writer writer(rank);
  writer.Times(2 * to_middle, [&] { return std::vector{writer.Forward(kNear)}; });
  // The two ranks in the middle hand the last of these on only behind the next pass.
  writer.Times(from_end + 1 - (middle ? 1 : 0), [&] {
    return std::vector{writer.Forward(kNear, !middle), writer.Forward(kFar)};
  });
  if (middle) {
    writer.Once({writer.Forward(kNear), writer.Forward(kFar, true)});
  }
  for (std::int64_t i = 0; i < to_middle; ++i) {
    // Braces order the calls: what leaves its weight gradients comes before what takes them up.
    writer.Once({writer.BackwardInput(kFar), writer.BackwardWeight(), writer.Forward(kFar)});
  }
  writer.Times(rank.microbatches / 2 - ranks + from_end + 1, [&] {
    return std::vector{writer.Forward(kNear, true), writer.Backward(kFar), writer.Forward(kFar, true),
                       writer.Backward(kNear)};
  });
  writer.Times(to_middle, [&] {
    return std::vector{writer.Backward(kFar), writer.Forward(kFar, true), writer.Backward(kNear)};
  });
  const std::int64_t both = from_end + 1, turning = both / 2;
  for (std::int64_t i = 0; i < both; ++i) {
    const bool far_waits = i > turning || (i == turning && from_end % 2 == 1);
    writer.Once({far_waits ? writer.BackwardInput(kFar) : writer.Backward(kFar),
                 i >= turning ? writer.BackwardInput(kNear) : writer.Backward(kNear)});
  }
  for (std::int64_t i = 0; i < to_middle; ++i) {
    writer.Once({writer.BackwardWeight(), writer.BackwardInput(kNear)});
  }
  for (std::int64_t i = 0; i < both; ++i) {
    writer.Once({writer.BackwardWeight()});
  }
  return std::move(writer).Runs();
}

Status Refuse(const Job& job) {
  TIDEMARK_TRY(AcceptOneChunk(job));
  const std::int64_t ranks = job.layout.pp, microbatches = job.Microbatches() / job.Flushes();
  if (ranks % 2 != 0) {
    return BadKey("layout.pp",
                  fmt::format("DualPipe runs from both ends and needs an even number of ranks, not {}", ranks),
                  "lower layout.pp by one, or set schedule to zb-h1");
  }
  if (microbatches % 2 != 0 || microbatches < 2 * ranks) {
    return BadKey(FlushKey(job),
                  fmt::format("DualPipe needs an even number of microbatches, at least {} (2 * layout.pp), not {}",
                              2 * ranks, microbatches),
                  HowToFill(job, std::to_string(std::max(2 * ranks, microbatches + 1))));
  }
  return Done{};
}

}  // namespace

/// DualPipe (arXiv 2412.19437, section 3.2.1; github.com/deepseek-ai/DualPipe, dualpipe.py, steps 1 to 8).
std::vector<PipelineSchedule> ScheduleDualpipe() {
  return {{.kind = Schedule::dualpipe,
           .name = "dualpipe",
           .summary = "two pipelines from both ends at once: every stage is held twice",
           .chunks = [](const Layout&) { return std::int64_t{2}; },
           .place = Place,
           .order = Order,
           .both_ways = true,
           .refuse = Refuse}};
}

}  // namespace tidemark
