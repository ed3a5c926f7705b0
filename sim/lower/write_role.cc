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
  RoleWriter(const Job& job, const Stage& stage, StepKind step, const Strategy& strategy)
      : role_(job, stage, step),
        data_parallel_(strategy.data_parallel(role_)),
        blocks_(role_, *data_parallel_),
        links_(role_, blocks_) {}

  Program Write() {
    const Job& job = role_.job;
    for (const SlotRun& run : ScheduleOf(job.schedule, role_.stage.index, role_.stage.count, job.accumulation_steps)) {
      WriteSlots(run);
    }
    links_.ExchangeTiedGradient(*data_parallel_);
    data_parallel_->OptimizerStep();
    return std::move(role_.builder).Build();
  }

 private:
  /// Iterations in which a slot is the window's first or last microbatch are written out; those between are one loop.
  void WriteSlots(const SlotRun& run) {
    for (std::int64_t i = 0; i < run.count;) {
      std::int64_t end = i + 1;
      if (!IsSpecial(run, i)) {
        while (end < run.count && !IsSpecial(run, end)) {
          ++end;
        }
      }
      if (end - i == 1) {
        WriteIteration(
            run,
            [&](const Slot& slot) {
              return Index{LoopId{}, slot.offset + i, 0};
            },
            i);
      } else {
        const std::size_t start = role_.builder.size();
        const std::int64_t from = run.slots.front().offset + i;
        WriteIteration(
            run,
            [&](const Slot& slot) {
              return Index{role_.microbatch_loop, slot.offset + i - from, 0};
            },
            i);
        role_.builder.Fold(start, {role_.microbatch_loop, end - i, from, 1, 0});
      }
      i = end;
    }
  }

  bool IsSpecial(const SlotRun& run, std::int64_t iteration) const {
    return std::any_of(run.slots.begin(), run.slots.end(), [&](const Slot& slot) {
      const std::int64_t microbatch = slot.offset + iteration;
      return microbatch == 0 || microbatch == role_.job.accumulation_steps - 1;
    });
  }

  template <class IndexOf>
  void WriteIteration(const SlotRun& run, IndexOf index_of, std::int64_t iteration) {
    for (const Slot& slot : run.slots) {
      const std::int64_t number = slot.offset + iteration;
      const Microbatch microbatch{index_of(slot), number == 0, number == role_.job.accumulation_steps - 1};
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
  }

  Role role_;
  std::unique_ptr<DataParallel> data_parallel_;
  BlockWriter blocks_;
  StageLinks links_;
};

}  // namespace

Program WriteRole(const Job& job, const Stage& stage, StepKind step, const Strategy& strategy) {
  return RoleWriter(job, stage, step, strategy).Write();
}

}  // namespace tidemark
