// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/ddp/replicated.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "sim/strategies/ddp/backward_updates.h"
#include "sim/strategies/ddp/bucket_layout.h"
#include "sim/strategies/ddp/buckets.h"
#include "sim/strategies/ddp/launch_bucket.h"
#include "sim/strategies/ddp/reducer_state.h"
#include "sim/strategies/optimizer.h"
#include "sim/strategies/parameter_table.h"
#include "sim/strategies/updated_parameters.h"

namespace tidemark {
namespace {

class Replicated : public DataParallel {
 public:
  Replicated(Role& role, ReplicatedGradients sums_replicated)
      : role_(role),
        sums_replicated_(sums_replicated),
        axes_(role.job.axes),
        ranks_(role.job.layout.GradientRanks()),
        stream_(role.builder.AddStream("dp", StreamKind::collective)),
        group_(role.AddGroup("dp", ranks_, role.job.layout.tp)),
        state_(role, {View(), StaysAllocated(), axes_.sync.static_graph, axes_.sync.find_unused_parameters}),
        everything_(OneBucket(role)),
        layout_(FindsUnused() ? BucketsByDefinition(role) : BucketsByArrival(role)) {
    DeclareParameters();
    DeclareStates();
    DeclareUsed();
  }

  void BeginMicrobatch(const Microbatch&) override {
    in_forward_ = true;
    if (state_.BeginForward()) {
      Rebuild();
    }
  }

  void EndForward(const Microbatch&) override { in_forward_ = false; }

  void EndBackward(const Microbatch& microbatch) override {
    if (microbatch.place.synchronises && !InBackward()) {
      FinishReduction();
    } else if (HasAccumulator()) {
      EachTrained(role_, [&](const ParameterAt& at) {
        role_.AddKernel("accumulate gradient", role_.compute, Gradient(at), accumulators_(role_, at));
        role_.Free(Gradient(at));
      });
    }
    state_.EndBackward(microbatch.place.synchronises);
  }

  void MeasureNorm() override { optimizer_.MeasureNorm(role_, AllUpdates()); }

  /// All updates first, then zero_grad: in the first step moments appear beside a full set of gradients.
  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    if (InBackward()) {
      state_.ZeroGradients();
    } else {
      optimizer_.Step(role_, AllUpdates());
      ZeroGradients();
      if (state_.EndUpdate(role_)) {
        Rebuild();
      }
    }
    role_.builder.Emit(End{Phase::optimizer});
    if (axes_.shard.optimizer && ranks_ > 1) {
      role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
      BetweenUpdateAndUse(role_, stream_,
                          [&] { role_.EachBlock([&](std::int64_t position) { GatherUpdatedBlock(position); }); });
      role_.builder.Emit(End{Phase::gather});
    }
  }

  void DiscardGradients(const Microbatch&) override { ZeroGradients(); }

  std::vector<std::int64_t> KeyBetweenMicrobatches() const override { return state_.Key(); }

  BufferRef Weight(const ParameterAt& at) override { return weights_(role_, at); }

  BufferRef BeginGradient(const Microbatch&, const ParameterAt& at) override {
    const BufferRef ref = GradientIsNew() ? Gradient(at) : contributions_(role_, at);
    role_.Alloc(ref);
    return ref;
  }

  void AfterAction(const Microbatch&, std::int64_t position, std::size_t action) override {
    for (const ParameterAt& at : updates_.TakeUnread(position, action)) {
      optimizer_.UpdateInBackward(role_, at.position, UpdateOf(at), role_.compute);
      role_.Free(Gradient(at));
    }
  }

  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    if (!GradientIsNew()) {
      const BufferRef contribution = contributions_(role_, at);
      role_.AddKernel("accumulate gradient", role_.compute, contribution, LivesInBucket() ? Slot(at) : Gradient(at));
      role_.Free(contribution);
    }
    if (InBackward()) {
      updates_.Add(at);
      return;
    }
    if (!microbatch.place.synchronises || state_.Delays()) {
      return;
    }
    PutIntoBucket(at);
    for (const BucketMembers& bucket : layout().Arrive(at)) {
      Launch(bucket);
    }
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    return in_forward_ ? std::vector<std::int64_t>() : layout().Key(position);
  }

  void Shift(std::int64_t blocks) override { layout().Shift(blocks); }

  ReplicatedGradients SumsReplicated() const override { return sums_replicated_; }

  BufferRef FinalGradient(const ParameterAt& at) override {
    return HasAccumulator() ? accumulators_(role_, at) : LivesInBucket() ? Slot(at) : Gradient(at);
  }

 private:
  /// A loop on one rank without the module DistributedDataParallel: there are no buckets.
  bool InBackward() const { return axes_.optimizer_step.in_backward; }
  /// With an accumulator, `.grad` is set to None after every backward pass, and a hook that reduces the accumulator
  /// stands in the place of the division and the all-reduce of the bucket.
  bool HasAccumulator() const { return axes_.precision.accumulate != axes_.precision.gradients; }
  bool View() const { return axes_.buffers.gradient_as_bucket_view && !HasAccumulator(); }
  bool StaysAllocated() const { return !axes_.buffers.set_to_none && !HasAccumulator(); }
  bool FindsUnused() const { return axes_.sync.find_unused_parameters && !axes_.sync.static_graph; }
  bool CountsParameters() const { return axes_.sync.find_unused_parameters || axes_.sync.static_graph; }

  BucketLayout& layout() const { return state_.rebuilt() ? *layout_ : *everything_; }
  /// With views, a synchronised backward re-points `.grad` to the bucket.
  bool LivesInBucket() const { return state_.gradients() == ReducerState::Gradients::in_bucket; }
  /// The backward pass writes `.grad` itself, because none exists.
  bool GradientIsNew() const { return HasAccumulator() || state_.gradients() == ReducerState::Gradients::absent; }

  BufferRef Gradient(const ParameterAt& at) const { return gradients_(role_, at); }
  BufferRef Slot(const ParameterAt& at) const { return (state_.rebuilt() ? buckets_ : first_).Slot(role_, at); }

  void DeclareParameters() {
    const Precision& precision = axes_.precision;
    const auto trained = ParameterTable::Of::trained;
    const auto own = ReducerState::Gradients::own;
    weights_.Declare(role_, "weight of", Category::parameter, precision.params, ParameterTable::Of::all, true);
    gradients_.Declare(role_, "gradient of", Category::gradient, precision.gradients, trained,
                       !HasAccumulator() && state_.gradients() == own,
                       !HasAccumulator() && state_.GradientsAtEnd(role_) == own);
    contributions_.Declare(role_, "new gradient of", Category::gradient, precision.gradients, trained, false);
    if (!InBackward()) {
      const bool at_start = state_.rebuilt(), at_end = state_.IsRebuiltAtEnd(role_);
      first_.Declare(role_, "first ", precision.gradients, *everything_, !at_start, !at_end);
      buckets_.Declare(role_, "", precision.gradients, *layout_, at_start, at_end);
    }
    if (HasAccumulator()) {
      accumulators_.Declare(role_, "accumulated gradient of", Category::accumulator, precision.accumulate, trained,
                            true);
    }
  }

  void DeclareStates() {
    std::vector<std::int64_t> elements;
    for (const StageRun& run : role_.stage.runs) {
      elements.push_back(UpdatedElements(role_.job, run.block()));
    }
    if (axes_.precision.master) {
      masters_ = role_.PerBlock("master weights of", Category::optimizer, *axes_.precision.master, role_.compute,
                                elements, true, true, HoldsUpdatedOfRuns(role_));
    }
    if (InBackward()) {
      optimizer_.Declare(role_, updates_.Slots());
      return;
    }
    const auto holds = [&](std::int64_t position) { return HoldsUpdated(role_, position); };
    optimizer_.Declare(
        role_, [&](std::int64_t position) { return UpdatedSizes(role_.job, role_.stage.BlockAt(position)); },
        OptimizerState::Tensors::parameters, axes_.shard.optimizer ? PartTable::HoldsAt(holds) : PartTable::HoldsAt());
  }

  void DeclareUsed() {
    for (const StageRun& run : role_.stage.runs) {
      const auto trained = std::count_if(run.block().parameters.begin(), run.block().parameters.end(), IsTrained);
      parameters_ += trained * run.count;
    }
    if (CountsParameters()) {
      used_ = role_.builder.AddBuffer({"used parameters",
                                       Category::bucket,
                                       DType::int32,
                                       parameters_,
                                       {1, 1},
                                       role_.compute,
                                       Place::device,
                                       true,
                                       true});
    }
  }

  /// Gradients that still view the first bucket hold it until they have moved into the new ones. Otherwise it is gone
  /// before the new ones appear.
  void Rebuild() {
    if (!LivesInBucket()) {
      first_.Free(role_);
      buckets_.Alloc(role_);
      return;
    }
    buckets_.Alloc(role_);
    EachTrained(role_, [&](const ParameterAt& at) {
      role_.CopyKernel("gradient to rebuilt bucket", role_.compute, first_.Slot(role_, at), buckets_.Slot(role_, at));
    });
    first_.Free(role_);
  }

  /// The division by the number of ranks is part of the copy; a gradient that is in its bucket already is divided
  /// there.
  void PutIntoBucket(const ParameterAt& at) {
    if (LivesInBucket()) {
      role_.builder.Emit(
          Scale{role_.builder.Named("divide gradient in bucket"), Rational(1, ranks_), role_.compute, Slot(at)});
      return;
    }
    role_.CopyKernel("gradient to bucket", role_.compute, Gradient(at), Slot(at),
                     HasAccumulator() ? Rational(1) : Rational(1, ranks_));
    if (View()) {
      role_.Free(Gradient(at));
    }
  }

  /// The end of a synchronised backward pass: launches what is left, waits for all, and copies the result back.
  void FinishReduction() {
    if (state_.Delays()) {
      ReduceUsed();
      EachTrained(role_, [&](const ParameterAt& at) { PutIntoBucket(at); });
    }
    for (const BucketMembers& bucket : layout().Finish()) {
      Launch(bucket);
    }
    if (FindsUnused()) {
      ReduceUsed();
    }
    role_.builder.Order(role_.compute, stream_, "reduced");
    if (!View()) {
      EachTrained(role_, [&](const ParameterAt& at) {
        role_.CopyKernel("gradient from bucket", role_.compute, Slot(at), Gradient(at));
        if (HasAccumulator()) {
          role_.Free(Gradient(at));
        }
      });
    }
  }

  /// Which parameters any rank has used: a number each, kept by the host.
  void ReduceUsed() {
    const BufferRef used{used_, {}};
    role_.builder.Emit(Copy{
        role_.builder.Named("copy used parameters"), role_.compute, SizeOf(DType::int32) * parameters_, {}, {used}});
    if (ranks_ > 1 && parameters_ > 0) {
      role_.builder.Order(stream_, role_.compute, "used parameters copied");
      role_.builder.Emit(Collective{role_.builder.Named("reduce used parameters"),
                                    CollectiveKind::all_reduce,
                                    Reduction::sum,
                                    Rational(1),
                                    group_,
                                    DType::int32,
                                    parameters_,
                                    stream_,
                                    {used},
                                    {used}});
    }
  }

  void Launch(const BucketMembers& bucket) {
    std::int64_t elements = 0;
    std::vector<BufferRef> reduced;
    for (const ParameterAt& member : bucket) {
      elements += ParameterOf(role_, member).elements;
      if (HasAccumulator()) {
        role_.AddKernel("accumulate gradient", role_.compute, Slot(member), accumulators_(role_, member));
      }
      reduced.push_back(HasAccumulator() ? accumulators_(role_, member) : Slot(member));
    }
    const bool scatters = axes_.shard.optimizer;
    LaunchBucket(role_, stream_, group_,
                 {scatters ? "scatter bucket" : "reduce bucket",
                  scatters ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                  HasAccumulator() ? Reduction::avg : Reduction::sum,
                  HasAccumulator() ? axes_.precision.accumulate : axes_.precision.gradients},
                 elements, reduced);
  }

  /// Bytes that a fused update moves per element, but for the moments.
  Bytes Moved() const {
    const DType gradient_type = HasAccumulator() ? axes_.precision.accumulate : axes_.precision.gradients;
    return SizeOf(gradient_type) + SizeOf(axes_.precision.params) * (axes_.precision.master ? 1 : 2) +
           (axes_.precision.master ? SizeOf(*axes_.precision.master) * 2 : Bytes(0));
  }

  TensorUpdate UpdateOf(const ParameterAt& at) {
    std::vector<BufferRef> weights{Weight(at)};
    if (axes_.precision.master) {
      weights.push_back(role_.Ref(masters_, at.position));
    }
    return {at.parameter, ParameterOf(role_, at).elements, {Gradient(at)}, std::move(weights), Moved()};
  }

  Updates AllUpdates() {
    return {[&](std::int64_t position) { return UpdatesOf(position); }};
  }

  std::vector<TensorUpdate> UpdatesOf(std::int64_t position) {
    const std::int64_t elements = UpdatedElements(role_.job, role_.stage.BlockAt(position));
    if (elements == 0) {
      return {};
    }
    std::vector<BufferRef> gradients, weights;
    if (axes_.precision.master) {
      weights.push_back(role_.Ref(masters_, position));
    }
    ForEachTrained(role_, position, [&](const ParameterAt& at) {
      gradients.push_back(FinalGradient(at));
      weights.push_back(Weight(at));
    });
    return {{0, elements, std::move(gradients), std::move(weights), Moved(), axes_.shard.optimizer}};
  }

  void ZeroGradients() {
    if (HasAccumulator() || StaysAllocated()) {
      EachTrained(role_, [&](const ParameterAt& at) {
        role_.ZeroKernel("zero gradient", role_.compute, Work::optimizer, FinalGradient(at));
      });
    } else if (!LivesInBucket()) {
      EachTrained(role_, [&](const ParameterAt& at) { role_.Free(Gradient(at)); });
    }
    state_.ZeroGradients();
  }

  void GatherUpdatedBlock(std::int64_t position) {
    const std::int64_t elements = TrainableElements(role_.stage.BlockAt(position));
    if (elements == 0) {
      return;
    }
    std::vector<BufferRef> weights;
    ForEachTrained(role_, position, [&](const ParameterAt& at) { weights.push_back(Weight(at)); });
    GatherUpdated(role_, stream_, group_, elements, weights, weights);
  }

  Role& role_;
  const ReplicatedGradients sums_replicated_;
  const Axes& axes_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  ReducerState state_;
  std::unique_ptr<BucketLayout> everything_, layout_;
  Buckets first_, buckets_;  ///< one of everything; and those that are rebuilt from it
  bool in_forward_ = false;
  ParameterTable weights_, gradients_, contributions_, accumulators_;
  BufferId used_;
  std::int64_t parameters_ = 0;  ///< trained ones: tensors, not elements
  RunBuffers masters_;
  OptimizerState optimizer_;
  BackwardUpdates updates_{role_};
};

}  // namespace

std::unique_ptr<DataParallel> MakeReplicated(Role& role) {
  return std::make_unique<Replicated>(role, ReplicatedGradients::in_backward);
}

std::unique_ptr<DataParallel> MakeReplicatedWithTies(Role& role) {
  return std::make_unique<Replicated>(role, ReplicatedGradients::before_step);
}

}  // namespace tidemark
