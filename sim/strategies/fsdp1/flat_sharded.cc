// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp1/flat_sharded.h"

#include <optional>

#include "sim/strategies/fsdp1/flat_sharded_buffers.h"
#include "sim/strategies/fsdp1/flat_sharded_gradients.h"
#include "sim/strategies/fsdp1/flat_sharded_limiter.h"
#include "sim/strategies/optimizer.h"

namespace tidemark {
namespace {

using BackwardPrefetch = Shard::BackwardPrefetch;

class FlatSharded : public DataParallel {
 public:
  explicit FlatSharded(Role& role)
      : role_(role),
        shard_(role.job.axes.shard),
        layout_(role),
        gradients_(layout_),
        limiter_(role, shard_.limit_all_gathers && !layout_.whole(), EventsLeftByTheStepBefore()) {
    const std::vector<Holding> holds = layout_.Holds(FlatLayout::Size::shard, false);
    optimizer_.Declare(
        role,
        [&](std::int64_t position) {
          const bool unit = layout_.IsTrainedUnit(position);
          return unit ? TensorSizes{layout_.shard_elements(position)} : TensorSizes{};
        },
        OptimizerState::Tensors::flat,
        [&](std::int64_t position) { return std::vector<Holding>{holds[role.stage.RunOf(position)]}; });
  }

  /// The root's pre-forward: gathers wait for whatever updated the shards, and the root comes first.
  void BeginMicrobatch(const Microbatch& microbatch) override {
    role_.builder.Order(layout_.gather_stream, role_.compute, "before forward");
    role_.builder.Order(layout_.cast_stream, role_.compute, "before forward");
    if (layout_.has_root()) {
      Unshard(layout_.root, GathersInForward(microbatch));
      Await();
    }
  }

  void BeforeForward(const Microbatch& microbatch, std::int64_t position) override {
    if (layout_.IsLayer(position)) {
      Unshard(position, GathersInForward(microbatch));
      Await();
    }
  }

  void AfterForward(const Microbatch&, std::int64_t position) override {
    if (layout_.IsLayer(position) && (shard_.reshard_after_forward || layout_.whole())) {
      Reshard(position);
    }
  }

  /// Without shards the cast copy goes at every reshard, the root's too.
  void EndForward(const Microbatch&) override {
    if (layout_.has_root() && layout_.whole()) {
      Reshard(layout_.root);
    }
  }

  void BeforeBackward(const Microbatch&, std::int64_t position) override {
    if (position == role_.stage.blocks - 1 && layout_.has_root()) {
      Unshard(layout_.root, layout_.whole());
      Await();
      Prefetch(BackwardPrefetch::pre, role_.stage.blocks);
    }
    if (!layout_.IsLayer(position)) {
      return;
    }
    if (prefetched_ != position) {
      Unshard(position, GathersInBackward());
    }
    prefetched_.reset();
    Await();
    Prefetch(BackwardPrefetch::pre, position);
  }

  void AfterBackward(const Microbatch& microbatch, std::int64_t position) override {
    if (layout_.IsLayer(position)) {
      FinishUnit(microbatch, position);
    } else if (position == layout_.root_end) {
      FinishUnit(microbatch, layout_.root);
    }
  }

  /// A root that nothing is trained of has no hook of its own: the end of the backward pass reshards it.
  void EndBackward(const Microbatch& microbatch) override {
    if (microbatch.place.synchronises) {
      gradients_.Join();
    }
    if (layout_.has_root() && layout_.root_end < 0 && ReshardsAfterBackward(microbatch)) {
      Reshard(layout_.root);
    }
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    optimizer_.Step(role_, {[&](std::int64_t position) { return UpdatesOf(position); }});
    role_.builder.Order(layout_.scatter_stream, role_.compute, "updated");
    layout_.EachTrainedUnit([&](std::int64_t unit) { gradients_.FreeFinal(unit); });
    role_.builder.Emit(End{Phase::optimizer});
  }

  /// Parameters that no_sync kept go too: the next step begins with a gather.
  void DiscardGradients(const Microbatch& last) override {
    role_.builder.Order(layout_.scatter_stream, role_.compute, "discarded");
    layout_.EachTrainedUnit([&](std::int64_t unit) { gradients_.Discard(last, unit); });
    if (!ReshardsAfterBackward(last)) {
      role_.EachBlock([&](std::int64_t position) {
        if (layout_.Unit(position) == position && layout_.SizeOfUnit(position).elements > 0) {
          role_.builder.Emit(Free{role_.Ref(layout_.full, position), true});
        }
      });
    }
  }

  BufferRef Weight(const ParameterAt& at) override {
    const bool direct = layout_.whole() && !layout_.casts_parameters();
    return role_.Ref(direct ? layout_.shard : layout_.full, layout_.Unit(at.position));
  }

  BufferRef BeginGradient(const Microbatch&, const ParameterAt& at) override {
    role_.Alloc(layout_.gradients(role_, at));
    return layout_.gradients(role_, at);
  }
  void EndGradient(const Microbatch&, const ParameterAt&) override {}

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    return {role_.KeyOf(prefetched_, position), limiter_.waiting()};
  }
  void Shift(std::int64_t blocks) override {
    if (prefetched_ && role_.stage.RunOf(*prefetched_) == role_.stage.RunOf(role_.current())) {
      *prefetched_ += blocks;
    }
  }
  std::vector<std::int64_t> KeyBetweenMicrobatches() const override { return {limiter_.waiting()}; }

  BufferRef FinalGradient(const ParameterAt& at) override { return gradients_.Final(layout_.Unit(at.position)); }

 private:
  /// A unit is one tensor.
  std::vector<TensorUpdate> UpdatesOf(std::int64_t position) {
    if (!layout_.IsTrainedUnit(position)) {
      return {};
    }
    return {{0,
             layout_.shard_elements(position),
             {gradients_.Final(position)},
             {role_.Ref(layout_.shard, position)},
             SizeOf(layout_.master) * 3}};
  }

  std::int64_t EventsLeftByTheStepBefore() const {
    std::int64_t layers = 0;
    for (std::size_t run = 0; run < role_.stage.runs.size(); ++run) {
      layers += layout_.units.layers[run] ? role_.stage.runs[run].count : 0;
    }
    return role_.step == StepKind::first ? 0
                                         : EventsLeft({layers, layout_.has_root(), shard_.reshard_after_forward,
                                                       shard_.backward_prefetch == BackwardPrefetch::pre,
                                                       shard_.backward_prefetch == BackwardPrefetch::post});
  }

  bool GathersInForward(const Microbatch& microbatch) const {
    return layout_.whole() || shard_.reshard_after_forward || !microbatch.place.pending;
  }
  bool GathersInBackward() const { return layout_.whole() || shard_.reshard_after_forward; }
  /// SHARD_GRAD_OP keeps parameters for the next microbatch when it does not synchronise.
  bool ReshardsAfterBackward(const Microbatch& microbatch) const {
    return layout_.whole() || shard_.reshard_after_forward || microbatch.place.synchronises;
  }

  /// The limiter has its say even where nothing has to be gathered.
  void Unshard(std::int64_t unit, bool gathers) {
    if (layout_.whole()) {
      CastWhole(unit, gathers);
      return;
    }
    const bool casts = gathers && layout_.casts_parameters();
    const BufferRef shard = role_.Ref(layout_.shard, unit);
    const BufferRef input = casts ? role_.Ref(layout_.cast, unit) : shard;
    if (casts) {
      role_.Alloc(input);
      role_.CopyKernel("cast shard", layout_.cast_stream, shard, input);
      role_.builder.Order(layout_.gather_stream, layout_.cast_stream, "cast");
    }
    limiter_.WaitForOne();
    if (!gathers) {
      return;
    }
    const BufferRef full = role_.Ref(layout_.full, unit);
    role_.Alloc(full);
    role_.builder.Emit(Collective{role_.builder.Named("gather parameters"),
                                  CollectiveKind::all_gather,
                                  Reduction::none,
                                  Rational(1),
                                  layout_.group,
                                  layout_.precision.params,
                                  layout_.SizeOfUnit(unit).padded,
                                  layout_.gather_stream,
                                  {input},
                                  {full}});
    if (casts) {
      role_.builder.Emit(Free{input, true});
    }
  }

  void CastWhole(std::int64_t unit, bool gathers) {
    if (gathers && layout_.casts_parameters()) {
      const BufferRef full = role_.Ref(layout_.full, unit);
      role_.Alloc(full);
      role_.CopyKernel("cast parameters", layout_.cast_stream, role_.Ref(layout_.shard, unit), full);
      role_.builder.Order(layout_.gather_stream, layout_.cast_stream, "cast");
    }
  }

  void Await() { role_.builder.Order(role_.compute, layout_.gather_stream, "unsharded"); }

  void Reshard(std::int64_t unit) {
    if (!layout_.whole() || layout_.casts_parameters()) {
      role_.builder.Emit(Free{role_.Ref(layout_.full, unit), true});
    }
    limiter_.Freed();
  }

  /// Unshards the layer below `position` ahead of its backward, where the policy says so.
  void Prefetch(BackwardPrefetch when, std::int64_t position) {
    const std::int64_t below = layout_.LayerBelow(position);
    if (shard_.backward_prefetch == when && below >= 0) {
      Unshard(below, GathersInBackward());
      prefetched_ = below;
    }
  }

  void FinishUnit(const Microbatch& microbatch, std::int64_t unit) {
    const bool trained = layout_.SizeOfUnit(unit).trained;
    if (trained) {
      gradients_.Flatten(microbatch, unit);
    }
    if (ReshardsAfterBackward(microbatch)) {
      Reshard(unit);
    }
    if (layout_.IsLayer(unit)) {
      Prefetch(BackwardPrefetch::post, unit);
    }
    if (trained && microbatch.place.synchronises) {
      gradients_.Reduce(microbatch, unit);
    }
  }

  Role& role_;
  const Shard& shard_;
  FlatLayout layout_;
  FlatGradients gradients_;
  GatherLimiter limiter_;
  OptimizerState optimizer_;
  std::optional<std::int64_t> prefetched_;  ///< unsharded ahead in the backward pass
};

}  // namespace

std::unique_ptr<DataParallel> MakeFlatSharded(Role& role) { return std::make_unique<FlatSharded>(role); }

}  // namespace tidemark
