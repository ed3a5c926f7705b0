// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/write_role.h"

#include <algorithm>

#include "sim/lower/block_writer.h"
#include "sim/lower/fold_run.h"
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
        links_(role_, blocks_) {}

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
  /// in the state in which it found it.
  void WriteSlots(const SlotRun& run) {
    for (std::int64_t i = 0; i < run.count;) {
      const std::int64_t alike = AlikeFrom(run, i);
      const std::size_t start = role_.builder.size();
      const std::vector<std::int64_t> before = Key();
      WriteIteration(run, i);
      const bool repeats = alike > 1 && Key() == before;
      const std::int64_t number = run.reversed ? run.count - 1 - i : i;
      if (repeats) {
        role_.builder.Fold(start, {role_.microbatch_loop, alike, number, run.reversed ? -1 : 1, 0});
      } else {
        role_.builder.Bind(start, role_.builder.size(), role_.microbatch_loop, number);
      }
      i += repeats ? alike : 1;
    }
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
      alike = std::min(alike, EndOfRunAt(slot.offset + i) - (slot.offset + i));
    }
    return alike;
  }

  /// The window run that holds the `order`-th microbatch, and where it ends.
  const WindowPlace& PlaceAt(std::int64_t order) const {
    for (const WindowRun& run : windows_) {
      if (order < run.count) {
        return run.place;
      }
      order -= run.count;
    }
    TIDEMARK_CHECK(false && "a microbatch outside all windows");
  }
  std::int64_t EndOfRunAt(std::int64_t order) const {
    std::int64_t end = 0;
    for (const WindowRun& run : windows_) {
      end += run.count;
      if (order < end) {
        return end;
      }
    }
    TIDEMARK_CHECK(false && "a microbatch outside all windows");
  }

  void WriteIteration(const SlotRun& run, std::int64_t iteration) {
    for (const Slot& slot : run.slots) {
      const Microbatch microbatch{{role_.microbatch_loop, slot.offset, 0}, PlaceAt(slot.offset + iteration)};
      slot.forward ? Forward(microbatch) : Backward(microbatch);
    }
  }

  void Forward(const Microbatch& microbatch) {
    role_.builder.Emit(Begin{Phase::load, microbatch.index});
    blocks_.Load(microbatch);
    role_.builder.Emit(End{Phase::load});
    role_.builder.Emit(Begin{Phase::forward, microbatch.index});
    data_parallel_->BeginMicrobatch(microbatch);
    links_.ReceiveActivation(microbatch);
    for (std::size_t run = 0; run < role_.stage.runs.size(); ++run) {
      FoldRun(role_, *data_parallel_, blocks_, {role_.stage.first[run], role_.stage.runs[run].count, 1},
              [&](std::int64_t position) {
                data_parallel_->BeforeForward(microbatch, position);
                blocks_.Forward(microbatch, position);
                data_parallel_->AfterForward(microbatch, position);
              });
    }
    data_parallel_->EndForward(microbatch);
    links_.SendActivation(microbatch);
    role_.builder.Emit(End{Phase::forward});
  }

  void Backward(const Microbatch& microbatch) {
    role_.builder.Emit(Begin{Phase::backward, microbatch.index});
    links_.ReceiveGradient(microbatch);
    for (std::size_t run = role_.stage.runs.size(); run-- > 0;) {
      const std::int64_t count = role_.stage.runs[run].count;
      FoldRun(role_, *data_parallel_, blocks_, {role_.stage.first[run] + count - 1, count, -1},
              [&](std::int64_t position) {
                data_parallel_->BeforeBackward(microbatch, position);
                blocks_.Backward(microbatch, position);
                data_parallel_->AfterBackward(microbatch, position);
              });
    }
    links_.SendGradient(microbatch);
    role_.builder.Emit(End{Phase::backward});
    role_.builder.Emit(Begin{Phase::reduce, microbatch.index});
    data_parallel_->EndBackward(microbatch);
    role_.builder.Emit(End{Phase::reduce});
    if (microbatch.place.last) {
      links_.ExchangeTiedGradient(*data_parallel_);
      data_parallel_->OptimizerStep();
      stepped_ = true;
    }
  }

  Role role_;
  const std::vector<WindowRun>& windows_;
  std::unique_ptr<DataParallel> data_parallel_;
  BlockWriter blocks_;
  StageLinks links_;
  bool stepped_ = false;
};

}  // namespace

Program WriteRole(const Job& job, const Stage& stage, StepKind step, const Strategy& strategy,
                  const std::vector<WindowRun>& windows) {
  return RoleWriter(job, stage, step, strategy, windows).Write();
}

}  // namespace tidemark
