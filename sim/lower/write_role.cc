// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/write_role.h"

#include <algorithm>
#include <deque>

#include "sim/lower/alike_blocks.h"
#include "sim/lower/chunk_writer.h"
#include "sim/lower/schedule.h"

namespace tidemark {
namespace {

class RoleWriter {
 public:
  RoleWriter(const Job& job, const std::vector<Stage>& chunks, StepKind step, const Strategy& strategy,
             const std::vector<WindowRun>& windows, std::int64_t rank)
      : job_(job), program_(job, chunks, SlotsOf(job, chunks), rank) {
    for (const Stage& chunk : chunks) {
      chunks_.emplace_back(job, chunk, step, strategy, windows, program_);
    }
  }

  Program Write() {
    GatherAhead(2);
    for (const SlotRun& run : program_.slots) {
      WriteSlots(run);
    }
    for (ChunkWriter& chunk : chunks_) {
      chunk.DiscardGradients();
    }
    return std::move(program_.builder).Build();
  }

 private:
  /// Iterations whose microbatches stand in their windows alike are one loop, as soon as one of them leaves everything
  /// in the state in which it found it; so are those that stand alike every few iterations, where that is shorter.
  void WriteSlots(const SlotRun& run) {
    const std::vector<Cycle> cycles = CyclesOf(run);
    for (std::int64_t i = 0; i < run.count;) {
      const auto cycle = std::find_if(cycles.begin(), cycles.end(), [&](const Cycle& c) { return i < c.end; });
      const bool within = cycle != cycles.end() && i >= cycle->begin && cycle->end - i >= 2 * cycle->period;
      const std::int64_t period = within ? cycle->period : 1;
      const std::int64_t alike = within ? (cycle->end - i) / period : AlikeFrom(run, i);
      i += WriteAlike(run, i, period, alike) ? alike * period : period;
    }
  }

  /// Writes `period` iterations from `i` on, as a loop over `times` such periods if the first one leaves everything in
  /// the state in which it found it; returns whether it does.
  bool WriteAlike(const SlotRun& run, std::int64_t i, std::int64_t period, std::int64_t times) {
    ProgramBuilder& builder = program_.builder;
    const LoopId loop = program_.microbatch_loop;
    const std::int64_t number = run.reversed ? run.count - 1 - i : i * run.advance;
    const std::int64_t step = run.reversed ? -1 : run.advance;
    // What is sent in another iteration than its own is sent once.
    const bool began_with_all_sent = held_.empty();
    const std::vector<std::int64_t> before = Key();
    std::vector<std::size_t> starts;
    for (std::int64_t j = 0; j < period; ++j) {
      starts.push_back(builder.size());
      WriteIteration(run, i + j);
    }
    const bool repeats = times > 1 && began_with_all_sent && held_.empty() && Key() == before;
    starts.push_back(builder.size());
    for (std::int64_t j = 0; j < period; ++j) {
      const std::size_t start = starts[static_cast<std::size_t>(j)], end = starts[static_cast<std::size_t>(j) + 1];
      if (repeats) {
        builder.Shift(start, end, loop, j * step);
      } else {
        builder.Bind(start, end, loop, number + j * step);
      }
    }
    if (repeats) {
      builder.Fold(starts.front(), {loop, times, number, step * period, 0});
    }
    return repeats;
  }

  /// Iterations [begin, end) that stand in their windows alike every `period`.
  struct Cycle {
    std::int64_t begin, end, period;
  };

  /// Those of a user's own predicate, which a pipeline does not have. One period is written out, so that it must be
  /// shorter than the loops over iterations that stand alike one after the other. Ordinary windows have too few of
  /// those for any cycle.
  std::vector<Cycle> CyclesOf(const SlotRun& run) const {
    constexpr std::size_t kFew = 8;
    std::vector<Cycle> cycles;
    if (chunks_.front().runs() < kFew) {
      return cycles;
    }
    std::vector<std::vector<std::int64_t>> described(static_cast<std::size_t>(run.count));
    for (std::int64_t i = 0; i < run.count; ++i) {
      for (const Slot& slot : run.slots) {
        const std::vector<std::int64_t> place = Described(ChunkOf(slot).PlaceAt(Order(run, slot, i)));
        std::vector<std::int64_t>& all = described[static_cast<std::size_t>(i)];
        all.insert(all.end(), place.begin(), place.end());
      }
    }
    const AlikeBlocks alike(described);
    for (std::int64_t i = 0; i < run.count;) {
      const Cycle cycle{i, i + alike.Left(i), alike.Period(i)};
      std::int64_t loops = 0;
      for (std::int64_t at = cycle.begin; at < cycle.end; at += AlikeFrom(run, at)) {
        ++loops;
      }
      if (cycle.period > 1 && cycle.period < loops) {
        cycles.push_back(cycle);
      }
      i = cycle.end;
    }
    return cycles;
  }

  /// What is under way between two microbatches.
  std::vector<std::int64_t> Key() const {
    std::vector<std::int64_t> key{static_cast<std::int64_t>(ahead_)};
    for (const ChunkWriter& chunk : chunks_) {
      const std::vector<std::int64_t> own = chunk.Key();
      key.insert(key.end(), own.begin(), own.end());
      key.push_back(chunk.is_complete() ? 1 : 0);
    }
    return key;
  }

  const ChunkWriter& ChunkOf(const Slot& slot) const { return chunks_[static_cast<std::size_t>(slot.chunk)]; }
  std::int64_t Order(const SlotRun& run, const Slot& slot, std::int64_t iteration) const {
    return OrderOf(job_, ChunkOf(slot).stage(), slot.offset + iteration * run.advance);
  }

  /// The number of iterations from `i` on in which every slot's microbatch stands in its window as it does in `i`.
  std::int64_t AlikeFrom(const SlotRun& run, std::int64_t i) const {
    std::int64_t alike = run.count - i;
    for (const Slot& slot : run.slots) {
      const std::int64_t order = Order(run, slot, i);
      const std::int64_t left = slot.in_window() ? ChunkOf(slot).EndOfRunAt(order) - order : INT64_MAX - run.advance;
      alike = std::min(alike, (left + run.advance - 1) / run.advance);
    }
    return alike;
  }

  /// Lets the first `count` chunks gather, if they have not yet.
  void GatherAhead(std::size_t count) {
    for (; ahead_ < std::min(chunks_.size(), count); ++ahead_) {
      chunks_[ahead_].GatherAhead();
    }
  }

  void WriteIteration(const SlotRun& run, std::int64_t iteration) {
    for (const Slot& slot : run.slots) {
      const Index index{program_.microbatch_loop, slot.offset, 0};
      const auto chunk = static_cast<std::size_t>(slot.chunk);
      GatherAhead(chunk + 2);
      chunks_[chunk].Write(slot, index, Order(run, slot, iteration), [&] { SendHeld(); });
      if (slot.held) {
        held_.push_back({chunk, slot.pass, index});
      }
      if (std::all_of(chunks_.begin(), chunks_.end(), [](const ChunkWriter& each) { return each.is_complete(); })) {
        Step();
      }
    }
    for (Held& held : held_) {
      // What is sent in another iteration does not move with that one's loop.
      held.index =
          held.index.loop.valid() ? Index{LoopId{}, held.index.offset + iteration * run.advance, 0} : held.index;
    }
  }

  void SendHeld() {
    for (const Held& held : held_) {
      chunks_[held.chunk].Send(held.pass, held.index);
    }
    held_.clear();
  }

  void Step() {
    // Each exchange is between two ranks, which must come to it at the same time: one direction's tied copies after the
    // other's, then one stage's two holders after the other's.
    std::vector<ChunkWriter*> in_order;
    std::vector<ReplicatedGradientSum::Chunk> replicated;
    for (ChunkWriter& chunk : chunks_) {
      replicated.push_back(chunk.OfReplicated());
    }
    replicated_.BeforeStep(replicated);
    for (ChunkWriter& chunk : chunks_) {
      chunk.ExchangeTied();
      in_order.push_back(&chunk);
    }
    std::sort(in_order.begin(), in_order.end(),
              [](const ChunkWriter* a, const ChunkWriter* b) { return a->stage().index < b->stage().index; });
    for (ChunkWriter* chunk : in_order) {
      chunk->ExchangeMirrored();
    }
    for (ChunkWriter& chunk : chunks_) {
      chunk.DivideByTokens();
    }
    if (chunks_.size() > 1 && job_.axes.optimizer_step.clip_norm > 0) {
      for (ChunkWriter& chunk : chunks_) {
        chunk.MeasureNorm();
      }
    }
    for (ChunkWriter& chunk : chunks_) {
      chunk.Step();
    }
  }

  /// The result of a pass that is not sent yet.
  struct Held {
    std::size_t chunk;
    Pass pass;
    Index index;
  };

  const Job& job_;
  RoleProgram program_;
  std::deque<ChunkWriter> chunks_;
  ReplicatedGradientSum replicated_;
  std::vector<Held> held_;
  std::size_t ahead_ = 0;  ///< chunks that have been let gather
};

}  // namespace

Program WriteRole(const Job& job, const std::vector<Stage>& chunks, StepKind step, const Strategy& strategy,
                  const std::vector<WindowRun>& windows, std::int64_t rank) {
  return RoleWriter(job, chunks, step, strategy, windows, rank).Write();
}

}  // namespace tidemark
