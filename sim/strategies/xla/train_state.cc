// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/xla/train_state.h"

#include <fmt/format.h>

#include "sim/strategies/optimizer.h"
#include "sim/strategies/updated_parameters.h"

namespace tidemark {

TrainState::TrainState(Role& role)
    : role_(role), donates_(role.job.axes.buffers.donate), moments_(MomentsOf(role.job.optimizer)) {
  const Precision& precision = role.job.axes.precision;
  weights_.Declare(role, "weight of", Category::parameter, precision.params, ParameterTable::Of::all, true);
  std::vector<std::int64_t> elements;
  for (const StageRun& run : role.stage.runs) {
    elements.push_back(UpdatedElements(role.job, run.block()) * moments_);
  }
  const auto declare_state = [&](const char* name, bool stays) {
    return role_.PerBlock(name, Category::optimizer, precision.optimizer, role_.compute, elements, stays, stays,
                          HoldsUpdatedOfRuns(role_));
  };
  state_ = declare_state("moments of", true);
  if (!donates_) {
    second_weights_.Declare(role, "second weight of", Category::parameter, precision.params,
                            ParameterTable::Of::trained, false);
    second_state_ = declare_state("second moments of", false);
  }
}

BufferRef TrainState::Weight(const ParameterAt& at) const { return weights_(role_, at); }

std::vector<BufferRef> TrainState::StateOf(std::int64_t position, const RunBuffers& moments) const {
  const BufferRef state = role_.Ref(moments, position);
  return state.buffer.valid() ? std::vector<BufferRef>{state} : std::vector<BufferRef>();
}

std::vector<BufferRef> TrainState::SecondOnesOf(std::int64_t position) const {
  std::vector<BufferRef> second = StateOf(position, second_state_);
  ForEachTrained(role_, position, [&](const ParameterAt& at) { second.push_back(second_weights_(role_, at)); });
  return second;
}

void TrainState::BeginReturning() {
  if (donates_) {
    return;
  }
  role_.EachBlock([&](std::int64_t position) {
    for (const BufferRef& second : SecondOnesOf(position)) {
      role_.Alloc(second);
    }
  });
}

void TrainState::EndReturning() {
  if (donates_) {
    return;
  }
  role_.EachBlock([&](std::int64_t position) {
    for (const BufferRef& second : SecondOnesOf(position)) {
      role_.Free(second);
    }
  });
}

/// Parameters and moments are read and written, gradients read.
Bytes TrainState::TrafficOf(std::int64_t elements, const std::vector<BufferRef>& gradients) const {
  const Precision& precision = role_.job.axes.precision;
  const Bytes gradient = SizeOf(role_.builder.buffer(gradients.front().buffer).dtype);
  return (gradient + SizeOf(precision.params) * 2 + SizeOf(precision.optimizer) * 2 * moments_) * elements;
}

void TrainState::Update(std::int64_t position, const std::vector<BufferRef>& gradients,
                        const std::vector<BufferRef>& updates) {
  const std::int64_t elements = UpdatedElements(role_.job, role_.stage.BlockAt(position));
  if (elements == 0) {
    return;
  }
  std::vector<BufferRef> reads = gradients;
  std::vector<BufferRef> writes = updates;
  ForEachTrained(role_, position, [&](const ParameterAt& at) {
    reads.push_back(Weight(at));
    if (updates.empty()) {
      writes.push_back(Weight(at));
    }
  });
  const std::vector<BufferRef> state = StateOf(position, state_);
  reads.insert(reads.end(), state.begin(), state.end());
  writes.insert(writes.end(), state.begin(), state.end());
  const OptimizerUpdate op{elements, TrafficOf(elements, gradients).count(),
                           UpdateFlopsPerElement(role_.job.optimizer)};
  const bool own_part = role_.job.axes.shard.optimizer && role_.job.layout.GradientRanks() > 1;
  role_.builder.Emit(Compute{role_.builder.Named("optimizer update"), op, role_.compute, Work::optimizer, Rational(1),
                             std::move(reads), std::move(writes), own_part});
}

void TrainState::MaskedUpdate(std::int64_t position, const std::vector<BufferRef>& gradients) {
  const std::int64_t elements = UpdatedElements(role_.job, role_.stage.BlockAt(position));
  if (elements == 0) {
    return;
  }
  std::vector<BufferRef> reads = StateOf(position, state_);
  ForEachTrained(role_, position, [&](const ParameterAt& at) { reads.push_back(Weight(at)); });
  reads.insert(reads.end(), gradients.begin(), gradients.end());
  role_.MemoryKernel("masked optimizer update", role_.compute, Work::optimizer, std::move(reads), {}, elements,
                     TrafficOf(elements, gradients));
}

IdleClaim KeepsInputs() {
  return {{"second weight of *", "second moments of *"},
          "without donation a step's inputs stay until the executable that returns the new ones is over"};
}

void Launch(Role& role, std::string_view executable) {
  role.MemoryKernel(fmt::format("launch {}", executable), role.compute, Work::compute, {}, {}, 0, Bytes(0));
}

}  // namespace tidemark
