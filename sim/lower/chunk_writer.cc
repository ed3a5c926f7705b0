// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/chunk_writer.h"

#include <algorithm>

#include "sim/lower/schedule.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

/// The windows of a chunk that sees `count` of a step's microbatches: its last one is the step's last.
std::vector<WindowRun> Shortened(std::vector<WindowRun> windows, std::int64_t count) {
  const WindowRun last{1, windows.back().place};
  std::vector<WindowRun> shorter;
  std::int64_t left = count - 1;
  for (const WindowRun& run : windows) {
    if (left > 0) {
      shorter.push_back({std::min(left, run.count), run.place});
      left -= shorter.back().count;
    }
  }
  shorter.push_back(last);
  return shorter;
}

}  // namespace

ChunkWriter::ChunkWriter(const Job& job, const Stage& stage, StepKind step, const Strategy& strategy,
                         const std::vector<WindowRun>& windows, RoleProgram& program)
    : role_(job, stage, step, program),
      windows_(windows),
      data_parallel_(strategy.data_parallel(role_)),
      blocks_(role_, *data_parallel_),
      links_(role_, blocks_),
      passes_(role_, *data_parallel_, blocks_),
      cache_(role_, passes_, blocks_) {
  if (MicrobatchesOfChunk(job) < job.Microbatches()) {
    windows_ = Shortened(windows, MicrobatchesOfChunk(job));
  }
  for (const WindowRun& run : windows_) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + run.count);
  }
}

std::size_t ChunkWriter::RunAt(std::int64_t order) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), order);
  TIDEMARK_CHECK(end != ends_.end());
  return static_cast<std::size_t>(end - ends_.begin());
}

std::vector<std::int64_t> ChunkWriter::Key() const {
  std::vector<std::int64_t> key = data_parallel_->KeyBetweenMicrobatches();
  key.push_back(blocks_.Key());
  // The first step's first optimizer update differs from all others: the optimizer's state appears.
  key.push_back(role_.step == StepKind::first && stepped_ ? 1 : 0);
  return key;
}

void ChunkWriter::Write(const Slot& slot, const Index& index, std::int64_t order,
                        const std::function<void()>& send_held) {
  const Microbatch microbatch{index, PlaceAt(order)};
  const Sending send = [&] {
    send_held();
    if (!slot.held) {
      Send(slot.pass, index);
    }
  };
  switch (slot.pass) {
    case Pass::forward:
      return Forward(microbatch, send);
    case Pass::backward:
      return Backward(microbatch, BlockWriter::Backwards::all, send);
    case Pass::backward_input:
      return Backward(microbatch, BlockWriter::Backwards::of_inputs, send);
    case Pass::backward_weight:
      return Backward(microbatch, BlockWriter::Backwards::of_weights, send);
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
      Finish(microbatch, cache_.BeginChunk(Phase::reduce, microbatch, slot.side));
      if (complete_) {
        cache_.Drop();
      }
  }
}

void ChunkWriter::Send(Pass pass, const Index& index) {
  const Microbatch microbatch{index, {}};
  if (pass == Pass::forward) {
    links_.SendActivation(microbatch);
  } else if (pass != Pass::backward_weight) {
    links_.SendGradient(microbatch);
  }
}

void ChunkWriter::Forward(const Microbatch& microbatch, const Sending& send) {
  role_.builder.Emit(Begin{Phase::load, microbatch.index});
  blocks_.Load(microbatch, role_.stage.AllRuns());
  role_.builder.Emit(End{Phase::load});
  role_.builder.Emit(Begin{Phase::forward, microbatch.index});
  data_parallel_->BeginMicrobatch(microbatch);
  links_.ReceiveActivation(microbatch);
  passes_.Forward(microbatch, role_.stage.AllRuns());
  data_parallel_->EndForward(microbatch);
  send();
  role_.builder.Emit(End{Phase::forward});
}

void ChunkWriter::Backward(const Microbatch& microbatch, BlockWriter::Backwards kind, const Sending& send) {
  role_.builder.Emit(Begin{Phase::backward, microbatch.index});
  if (kind != BlockWriter::Backwards::of_weights) {
    links_.ReceiveGradient(microbatch);
  }
  passes_.Backward(microbatch, role_.stage.AllRuns(), kind);
  send();
  role_.builder.Emit(End{Phase::backward});
  if (kind != BlockWriter::Backwards::of_inputs) {
    Finish(microbatch, {Phase::reduce, microbatch.index});
  }
}

void ChunkWriter::Finish(const Microbatch& microbatch, const Begin& begin) {
  role_.builder.Emit(begin);
  data_parallel_->EndBackward(microbatch);
  role_.builder.Emit(End{Phase::reduce});
  complete_ = microbatch.place.last;
}

void ChunkWriter::ExchangeMirrored() {
  if (role_.program.is_mirrored) {
    links_.ExchangeMirrored(*data_parallel_);
  }
}

void ChunkWriter::DivideByTokens() {
  if (role_.job.axes.loss_scale != LossScale::summed_tokens) {
    return;
  }
  const Rational share(1, role_.job.Microbatches() * role_.job.layout.GradientRanks());
  role_.builder.Emit(Begin{Phase::reduce, {LoopId{}, -1, 0}});
  EachTrained(role_, [&](const ParameterAt& at) {
    role_.builder.Emit(
        Scale{role_.builder.Named("divide by tokens"), share, role_.compute, data_parallel_->FinalGradient(at)});
  });
  role_.builder.Emit(End{Phase::reduce});
}

void ChunkWriter::MeasureNorm() {
  role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
  data_parallel_->MeasureNorm();
  role_.builder.Emit(End{Phase::optimizer});
}

void ChunkWriter::Step() {
  data_parallel_->OptimizerStep();
  complete_ = false;
  stepped_ = true;
}

void ChunkWriter::DiscardGradients() {
  if (!windows_.back().place.last) {
    data_parallel_->DiscardGradients({{LoopId{}, role_.job.Microbatches() - 1, 0}, windows_.back().place});
  }
}

}  // namespace tidemark
