// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/deepspeed_flat.h"
#include "sim/strategies/parameter_order.h"
#include "sim/strategies/updated_parameters.h"

namespace tidemark {
namespace {

/// nccl_start_alignment_factor: parts begin at multiples of two elements.
constexpr std::int64_t kAlignment = 2;

std::int64_t MomentsOf(OptimizerKind kind) {
  return kind == OptimizerKind::adamw ? 2 : kind == OptimizerKind::sgd_momentum ? 1 : 0;
}

/// As for the updates of sim/strategies/optimizer.cc.
std::int64_t FlopsPerElement(OptimizerKind kind) { return kind == OptimizerKind::adamw ? 12 : 4; }

}  // namespace

FlatParameters::FlatParameters(Role& role, std::int64_t parts, Moments moments)
    : role_(role),
      parts_(parts),
      master_type_(role.job.axes.precision.master.value_or(role.job.axes.precision.params)),
      moments_exist_(role.step != StepKind::first || moments == Moments::before_first_step) {
  const Precision& precision = role.job.axes.precision;
  for (const BlockRun& run : role.stage.runs) {
    elements_ += TrainableElements(run.block) * run.count;
  }
  padded_ = parts_ == 1 ? elements_ : RoundUp(elements_, kAlignment * parts_);
  weights_.Declare(role, "weight of", Category::parameter, precision.params, ParameterTable::Of::all, true);
  const auto kept = [&](const char* name, Category category, DType dtype, std::int64_t elements, bool resident) {
    return elements == 0 ? BufferId{}
                         : role.builder.AddBuffer(
                               {name, category, dtype, elements, {1, 1}, role.compute, Place::device, resident, true});
  };
  kept("padding behind the weights", Category::parameter, precision.params, padded_ - elements_, true);
  master_ = kept("master weights", Category::optimizer, master_type_, part(), true);
  moments_ =
      kept("moments", Category::optimizer, precision.optimizer, MomentsOf(role.job.optimizer) * part(), moments_exist_);
}

BufferRef FlatParameters::Declare(const char* name, Category category, DType dtype, std::int64_t elements,
                                  StreamId stream) {
  return {elements == 0 ? BufferId{} : role_.builder.AddBuffer({name, category, dtype, elements, {1, 1}, stream}), {}};
}

void FlatParameters::Update(const BufferRef& gradient) {
  std::vector<BufferRef> writes{master()};
  if (moments_.valid()) {
    if (!moments_exist_) {
      role_.Alloc({moments_, {}});
      role_.ZeroKernel("zero moments", role_.compute, Work::optimizer, {moments_, {}});
      moments_exist_ = true;
    }
    writes.push_back({moments_, {}});
  }
  std::vector<BufferRef> reads = writes;
  reads.push_back(gradient);
  const Bytes moved = (SizeOf(master_type_) * 2 + SizeOf(role_.builder.buffer(gradient.buffer).dtype) +
                       SizeOf(role_.job.axes.precision.optimizer) * 2 * MomentsOf(role_.job.optimizer)) *
                      part();
  role_.builder.Emit(Compute{role_.builder.Named("optimizer update"),
                             OptimizerUpdate{part(), moved.count(), FlopsPerElement(role_.job.optimizer)},
                             role_.compute, Work::optimizer, Rational(1), false, std::move(reads), std::move(writes)});
}

void FlatParameters::CopyToWeights() {
  role_.MemoryKernel("masters to weights", role_.compute, Work::optimizer, {master()}, AllWeights(), part(),
                     (SizeOf(master_type_) + SizeOf(role_.job.axes.precision.params)) * part());
}

void FlatParameters::Gather(StreamId stream, GroupId group) {
  if (parts_ == 1) {
    return;
  }
  const std::vector<BufferRef> weights = AllWeights();
  BetweenUpdateAndUse(role_, stream, [&] { GatherUpdated(role_, stream, group, padded_, weights, weights); });
}

std::vector<BufferRef> FlatParameters::AllWeights() {
  std::vector<BufferRef> weights;
  for (const ParameterAt& at : DefinitionOrder(role_)) {
    weights.push_back(Weight(at));
  }
  return weights;
}

}  // namespace tidemark
