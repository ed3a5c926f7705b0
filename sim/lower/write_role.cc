// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/write_role.h"

#include <algorithm>

#include "sim/lower/alike_blocks.h"
#include "sim/lower/block_passes.h"
#include "sim/lower/block_writer.h"
#include "sim/lower/cache_passes.h"
#include "sim/lower/schedule.h"
#include "sim/lower/stage_links.h"

namespace tidemark {
namespace {

class RoleWriter {
 public:
  RoleWriter(const Job& job, const Stage& stage, StepKind step, const Strategy& strategy,
             const std::vector<WindowRun>& windows)
      : role_(job, stage, step),
        windows_(windows),
        data_parallel_(strategy.data_parallel(role_)),
        blocks_(role_, *data_parallel_),
        links_(role_, blocks_),
        passes_(role_, *data_parallel_, blocks_),
        cache_(role_, passes_, blocks_) {
    for (const WindowRun& run : windows) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + run.count);
    }
  }

  Program Write() {
    for (const SlotRun& run : ScheduleOf(role_.job, role_.stage.index, role_.stage.count)) {
      WriteSlots(run);
    }
    if (!windows_.back().place.last) {
      data_parallel_->DiscardGradients({{LoopId{}, role_.job.Microbatches() - 1, 0}, windows_.back().place});
    }
    return std::move(role_.builder).Build();
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
    const std::int64_t number = run.reversed ? run.count - 1 - i : i;
    const std::int64_t step = run.reversed ? -1 : 1;
    const std::vector<std::int64_t> before = Key();
    std::vector<std::size_t> starts;
    for (std::int64_t j = 0; j < period; ++j) {
      starts.push_back(role_.builder.size());
      WriteIteration(run, i + j);
    }
    const bool repeats = times > 1 && Key() == before;
    starts.push_back(role_.builder.size());
    for (std::int64_t j = 0; j < period; ++j) {
      const std::size_t start = starts[static_cast<std::size_t>(j)], end = starts[static_cast<std::size_t>(j) + 1];
      if (repeats) {
        role_.builder.Shift(start, end, role_.microbatch_loop, j * step);
      } else {
        role_.builder.Bind(start, end, role_.microbatch_loop, number + j * step);
      }
    }
    if (repeats) {
      role_.builder.Fold(starts.front(), {role_.microbatch_loop, times, number, step * period, 0});
    }
    return repeats;
  }

  /// Iterations [begin, end) that stand in their windows alike every `period`.
  struct Cycle {
    std::int64_t begin, end, period;
  };

  /// Those of a user's own predicate. One period is written out, so that it must be shorter than the loops over
  /// iterations that stand alike one after the other. Ordinary windows have too few of those for any cycle.
  std::vector<Cycle> CyclesOf(const SlotRun& run) const {
    constexpr std::size_t kFew = 8;
    std::vector<Cycle> cycles;
    if (windows_.size() < kFew) {
      return cycles;
    }
    std::vector<std::vector<std::int64_t>> described(static_cast<std::size_t>(run.count));
    for (std::int64_t i = 0; i < run.count; ++i) {
      for (const Slot& slot : run.slots) {
        const std::vector<std::int64_t> place = Described(PlaceAt(slot.offset + i));
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

  /// What is under way between two microbatches. The first step's first optimizer update differs from all others:
  /// the optimizer's state appears.
  std::vector<std::int64_t> Key() const {
    std::vector<std::int64_t> key = data_parallel_->KeyBetweenMicrobatches();
    key.push_back(blocks_.Key());
    key.push_back(role_.step == StepKind::first && stepped_ ? 1 : 0);
    return key;
  }

  /// The number of iterations from `i` on in which every slot's microbatch stands in its window as it does in `i`.
  std::int64_t AlikeFrom(const SlotRun& run, std::int64_t i) const {
    std::int64_t alike = run.count - i;
    for (const Slot& slot : run.slots) {
      alike = slot.in_window() ? std::min(alike, EndOfRunAt(slot.offset + i) - (slot.offset + i)) : alike;
    }
    return alike;
  }

  /// The window run that holds the `order`-th microbatch, and where it ends.
  std::size_t RunAt(std::int64_t order) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), order);
    TIDEMARK_CHECK(end != ends_.end());
    return static_cast<std::size_t>(end - ends_.begin());
  }
  const WindowPlace& PlaceAt(std::int64_t order) const { return windows_[RunAt(order)].place; }
  std::int64_t EndOfRunAt(std::int64_t order) const { return ends_[RunAt(order)]; }

  void WriteIteration(const SlotRun& run, std::int64_t iteration) {
    for (const Slot& slot : run.slots) {
      const Microbatch microbatch{{role_.microbatch_loop, slot.offset, 0}, PlaceAt(slot.offset + iteration)};
      Write(slot, microbatch);
    }
  }

  void Write(const Slot& slot, const Microbatch& microbatch) {
    switch (slot.pass) {
      case Pass::forward:
        return Forward(microbatch);
      case Pass::backward:
        return Backward(microbatch);
      case Pass::load:
        return cache_.Load(microbatch, slot.side);
      case Pass::represent:
        return cache_.Represent(microbatch, slot.side);
      case Pass::join:
        return cache_.Join(slot.side);
      case Pass::loss:
        return cache_.Loss(microbatch);
      case Pass::again:
        return cache_.Forward(microbatch, slot.side);
      case Pass::surrogate:
        cache_.Backward(microbatch, slot.side);
        Reduce(microbatch, cache_.BeginChunk(Phase::reduce, microbatch, slot.side));
        if (microbatch.place.last) {
          cache_.Drop();
          Step();
        }
        return;
    }
  }

  void Forward(const Microbatch& microbatch) {
    role_.builder.Emit(Begin{Phase::load, microbatch.index});
    blocks_.Load(microbatch, role_.stage.AllRuns());
    role_.builder.Emit(End{Phase::load});
    role_.builder.Emit(Begin{Phase::forward, microbatch.index});
    data_parallel_->BeginMicrobatch(microbatch);
    links_.ReceiveActivation(microbatch);
    passes_.Forward(microbatch, role_.stage.AllRuns());
    data_parallel_->EndForward(microbatch);
    links_.SendActivation(microbatch);
    role_.builder.Emit(End{Phase::forward});
  }

  void Backward(const Microbatch& microbatch) {
    role_.builder.Emit(Begin{Phase::backward, microbatch.index});
    links_.ReceiveGradient(microbatch);
    passes_.Backward(microbatch, role_.stage.AllRuns());
    links_.SendGradient(microbatch);
    role_.builder.Emit(End{Phase::backward});
    Reduce(microbatch, {Phase::reduce, microbatch.index});
    if (microbatch.place.last) {
      links_.ExchangeTiedGradient(*data_parallel_);
      Step();
    }
  }

  /// Behind every backward pass.
  void Reduce(const Microbatch& microbatch, const Begin& begin) {
    role_.builder.Emit(begin);
    data_parallel_->EndBackward(microbatch);
    role_.builder.Emit(End{Phase::reduce});
  }

  void Step() {
    data_parallel_->OptimizerStep();
    stepped_ = true;
  }

  Role role_;
  const std::vector<WindowRun>& windows_;
  std::vector<std::int64_t> ends_;  ///< of the windows' runs, in microbatches
  std::unique_ptr<DataParallel> data_parallel_;
  BlockWriter blocks_;
  StageLinks links_;
  BlockPasses passes_;
  CachePasses cache_;
  bool stepped_ = false;
};

}  // namespace

Program WriteRole(const Job& job, const Stage& stage, StepKind step, const Strategy& strategy,
                  const std::vector<WindowRun>& windows) {
  return RoleWriter(job, stage, step, strategy, windows).Write();
}

}  // namespace tidemark
