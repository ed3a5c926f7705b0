// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/deepspeed_flat.h"

#include <utility>

#include "sim/strategies/host_optimizer.h"
#include "sim/strategies/parameter_order.h"
#include "sim/strategies/update_kernels.h"
#include "sim/strategies/updated_parameters.h"

namespace tidemark {
namespace {

/// nccl_start_alignment_factor: parts begin at multiples of two elements.
constexpr std::int64_t kAlignment = 2;

}  // namespace

FlatParameters::FlatParameters(Role& role, std::int64_t parts, Moments moments)
    : role_(role),
      parts_(parts),
      master_type_(role.job.axes.precision.master.value_or(role.job.axes.precision.params)),
      moments_exist_(role.step != StepKind::first || moments == Moments::before_first_step) {
  const Precision& precision = role.job.axes.precision;
  for (const StageRun& run : role.stage.runs) {
    elements_ += TrainableElements(run.block()) * run.count;
  }
  padded_ = parts_ == 1 ? elements_ : RoundUp(elements_, kAlignment * parts_);
  weights_.Declare(role, "weight of", Category::parameter, precision.params, ParameterTable::Of::all, true);
  const auto kept = [&](const char* name, Category category, DType dtype, std::int64_t elements, bool resident,
                        Place place, std::vector<Holding> holds) {
    const StreamId birth = place == Place::host ? kHostStream : role.compute;
    return elements == 0
               ? BufferId{}
               : role.builder.AddBuffer(
                     {name, category, dtype, elements, {1, 1}, birth, place, resident, true, {}, std::move(holds)});
  };
  const Place place = StatePlace(role.job);
  padding_ = kept("padding behind the weights", Category::parameter, precision.params, padded_ - elements_, true,
                  Place::device, {});
  master_ = kept("master weights", Category::optimizer, master_type_, part(), true, place, Holds(Parts::own, true));
  moments_ = kept("moments", Category::optimizer, precision.optimizer, MomentsOf(role.job.optimizer) * part(),
                  moments_exist_, place, Holds(Parts::own));
  if (place == Place::host) {
    host_weights_ =
        DeclareOnHost(role, "own part of the weights", Category::parameter, precision.params, part(), true, true);
  }
  clip_.emplace(role, elements_ > 0 ? 1 : 0);
  const std::int64_t temporary = UpdateKernels::MakesRoots(role.job) ? part() : 0;
  root_ = Declare("root for the moments", Category::workspace, precision.optimizer, temporary, role.compute);
  denominator_ =
      Declare("denominator for the moments", Category::workspace, precision.optimizer, temporary, role.compute);
}

BufferRef FlatParameters::Declare(const char* name, Category category, DType dtype, std::int64_t elements,
                                  StreamId stream, std::vector<Holding> holds) {
  return {
      elements == 0
          ? BufferId{}
          : role_.builder.AddBuffer(
                {name, category, dtype, elements, {1, 1}, stream, Place::device, false, false, {}, std::move(holds)}),
      {}};
}

std::vector<Holding> FlatParameters::Holds(Parts parts, bool masters) const {
  Holding holding;
  holding.cut = Cut::together;
  holding.ranks = parts_;
  holding.parts = parts;
  holding.masters = masters;
  holding.multiple = parts_ == 1 ? 1 : kAlignment * parts_;
  for (const StageRun& run : role_.stage.runs) {
    if (TrainableElements(run.block()) > 0) {
      holding.of.push_back({run.block().name, 0, run.count});
    }
  }
  return {std::move(holding)};
}

void FlatParameters::Update(const BufferRef& gradient) {
  const Bytes moved = SizeOf(master_type_) * 2 + SizeOf(role_.builder.buffer(gradient.buffer).dtype);
  UpdatePiece piece{{0, part(), {gradient}, {master()}, moved}, {}, root_, denominator_};
  if (moments_.valid()) {
    piece.states.push_back({moments_, {}});
  }
  const EachPiece each = [&](const PieceVisitor& visit) { visit(piece); };
  Clip(gradient);
  if (moments_.valid() && !std::exchange(moments_exist_, true)) {
    UpdateKernels(role_, StateStream(role_)).MakeState(piece);
  }
  if (host_weights_.buffer.valid()) {
    return UpdateKernels(role_, kHostStream).UpdateAtOnce(piece);
  }
  const bool for_loop = role_.job.axes.optimizer_step.kernel == OptimizerStep::Kernel::for_loop;
  UpdateInLists(role_, each, for_loop);
}

/// All of the gradient: with BF16_Optimizer each rank holds the whole one and clips it. A gradient in host memory was
/// measured on its way there, and the host, which reads the norm, multiplies it.
void FlatParameters::Clip(const BufferRef& gradient) {
  const std::int64_t elements = role_.builder.buffer(gradient.buffer).elements;
  const UpdatePiece piece{{0, elements, {gradient}, {}, Bytes(0)}, {}, {}, {}};
  const EachPiece each = [&](const PieceVisitor& visit) { visit(piece); };
  const bool divided = elements < padded_;
  if (host_weights_.buffer.valid()) {
    clip_->Sum(divided, true);
    role_.builder.Emit(HostSync{role_.compute});  // the gradients have come
  } else {
    clip_->Measure(each, divided, false);
  }
  clip_->Scale(each, StateStream(role_));
  clip_->Forget();
}

void FlatParameters::CopyToWeights() {
  const DType type = role_.job.axes.precision.params;
  if (host_weights_.buffer.valid()) {
    role_.MemoryKernel("masters to weights", kHostStream, Work::optimizer, {master()}, {host_weights_}, part(),
                       (SizeOf(master_type_) + SizeOf(type)) * part());
    return CopyOverLink(role_, "weights to device", role_.compute, {host_weights_}, AllWeights(), part(), type);
  }
  role_.MemoryKernel("masters to weights", role_.compute, Work::optimizer, {master()}, AllWeights(), part(),
                     (SizeOf(master_type_) + SizeOf(type)) * part());
}

void FlatParameters::Gather(StreamId stream, GroupId group) {
  if (parts_ == 1) {
    return;
  }
  std::vector<BufferRef> weights = AllWeights();
  if (padding_.valid()) {
    weights.push_back({padding_, {}});
  }
  BetweenUpdateAndUse(role_, stream, [&] {
    role_.builder.Emit(Collective{role_.builder.Named("gather flat parameters"), CollectiveKind::all_gather,
                                  Reduction::none, Rational(1), group, role_.job.axes.precision.params, padded_, stream,
                                  weights, weights});
  });
}

std::vector<BufferRef> FlatParameters::AllWeights() {
  std::vector<BufferRef> weights;
  for (const ParameterAt& at : DefinitionOrder(role_)) {
    weights.push_back(Weight(at));
  }
  return weights;
}

}  // namespace tidemark
