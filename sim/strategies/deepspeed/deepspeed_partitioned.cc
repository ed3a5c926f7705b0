// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/deepspeed_partitioned.h"

#include "sim/strategies/autograd_gradients.h"
#include "sim/strategies/deepspeed/deepspeed_bucket.h"
#include "sim/strategies/deepspeed/deepspeed_flat.h"
#include "sim/strategies/deepspeed/deepspeed_offload.h"
#include "sim/strategies/parameter_order.h"

namespace tidemark {
namespace {

class DeepSpeedPartitioned : public DataParallel {
 public:
  explicit DeepSpeedPartitioned(Role& role)
      : role_(role),
        axes_(role.job.axes),
        ranks_(role.job.layout.GradientRanks()),
        stream_(role.builder.AddStream("dp", StreamKind::collective)),
        group_(role.AddGroup("dp", ranks_, role.job.layout.tp)),
        flat_(role, ranks_, FlatParameters::Moments::with_first_update),
        bucket_(role, gradients_.table(), stream_, group_),
        offloaded_(role, flat_, bucket_.kernels()) {
    const DType type = axes_.precision.params;
    gradients_.Declare(role, type);
    const std::vector<Holding> own = flat_.Holds(Parts::own);
    const StreamId birth = axes_.sync.overlap ? stream_ : role.compute;
    averaged_ = flat_.Declare("averaged gradients of own part", Category::gradient, type, flat_.part(), birth, own);
    new_averaged_ =
        flat_.Declare("new averaged gradients of own part", Category::gradient, type, flat_.part(), birth, own);
    flat_copy_ = flat_.Declare("flat gradients of own part", Category::gradient, type, flat_.part(), role.compute, own);
    master_gradient_ = flat_.Declare("flat gradients for the masters", Category::gradient, flat_.master_type(),
                                     flat_.part(), role.compute, flat_.Holds(Parts::own, true));
    if (Offloads()) {
      bucket_.SetTaker([this](const BufferRef& content, std::int64_t elements, bool first) {
        offloaded_.Take(content, elements, first);
      });
    }
  }

  void BeforeBackward(const Microbatch& microbatch, std::int64_t) override {
    reducing_ = ReducesFromHooks(microbatch);
    offloaded_.BeginBackward(microbatch.place);
  }

  BufferRef Weight(const ParameterAt& at) override { return flat_.Weight(at); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    return gradients_.Begin(role_, at, !GradientIsNew(microbatch));
  }

  /// The hook of one parameter.
  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    gradients_.End(role_, at, !GradientIsNew(microbatch));
    if (axes_.sync.coalesce) {
      return;
    }
    Open(microbatch);
    if (ReducesFromHooks(microbatch)) {
      bucket_.Add(at);
    }
  }

  void EndBackward(const Microbatch& microbatch) override {
    reducing_ = false;
    if (!microbatch.place.synchronises || flat_.elements() == 0) {
      return;
    }
    if (axes_.sync.coalesce && axes_.sync.overlap) {
      role_.builder.Emit(HostSync{stream_});
    }
    Open(microbatch);
    if (ReducesFromHooks(microbatch)) {
      bucket_.Flush();
    } else {
      bucket_.AddAll(DefinitionOrder(role_));
    }
    if (axes_.sync.overlap) {
      role_.builder.Emit(HostSync{});  // the epilogue synchronises the device, in every backward pass
    }
    AddToFirst(microbatch);
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    if (flat_.elements() > 0 && Offloads()) {
      flat_.Update(offloaded_.gradient());
      flat_.CopyToWeights();
    } else if (flat_.elements() > 0) {
      FlattenGradients();
      flat_.Update(master_gradient());
      role_.Free(master_gradient());
      flat_.CopyToWeights();
    }
    role_.builder.Emit(End{Phase::optimizer});
    if (flat_.elements() > 0 && ranks_ > 1) {
      role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
      flat_.Gather(stream_, group_);
      role_.builder.Emit(End{Phase::gather});
    }
  }

  /// zero_grad; the bucket would stay for the next window.
  void DiscardGradients(const Microbatch&) override {
    gradients_.Free(role_);
    if (bucket_.open()) {
      bucket_.Close();
    }
  }

  std::vector<std::int64_t> KeyBetweenMicrobatches() const override {
    return {bucket_.open() ? 1 : 0, offloaded_.sum_exists() ? 1 : 0};
  }
  std::vector<std::int64_t> Key(std::int64_t position) const override {
    return reducing_ ? bucket_.Key(position) : KeyBetweenMicrobatches();
  }
  std::int64_t BlocksAlike(std::int64_t position) const override {
    return reducing_ ? bucket_.BlocksAlike(position) : INT64_MAX;
  }
  void Shift(std::int64_t blocks) override {
    if (reducing_) {
      bucket_.Shift(blocks);
    }
  }

  BufferRef FinalGradient(const ParameterAt&) override { return Offloads() ? offloaded_.gradient() : averaged_; }

 private:
  bool Offloads() const { return axes_.optimizer_step.offload; }
  /// Stage 2's epilogue sets `.grad` to None in every backward pass.
  bool GradientIsNew(const Microbatch& microbatch) const { return microbatch.first() || ReducesEach(); }
  bool ReducesEach() const { return axes_.shard.gradients && !axes_.sync.coalesce; }
  bool ReducesFromHooks(const Microbatch& microbatch) const {
    return !axes_.sync.coalesce && (axes_.shard.gradients || (axes_.sync.overlap && microbatch.place.synchronises));
  }

  void Open(const Microbatch& microbatch) {
    if (!bucket_.open()) {
      bucket_.Open();
      bucket_.SetTarget(microbatch.place.reduced ? new_averaged_ : averaged_);
    }
  }

  /// The rest of the epilogue.
  void AddToFirst(const Microbatch& microbatch) {
    if (Offloads()) {
      return bucket_.Close();
    }
    if (microbatch.place.reduced) {
      role_.AddKernel("accumulate averaged gradients", role_.compute, new_averaged_, averaged_);
    }
    bucket_.Close();
    if (microbatch.place.reduced) {
      FreeAveraged(new_averaged_);
    }
  }

  /// With overlap it was born on the reduction stream, which may hand its memory out again.
  void FreeAveraged(const BufferRef& ref) {
    if (axes_.sync.overlap) {
      role_.builder.Order(stream_, role_.compute, "averaged gradients read");
    }
    role_.Free(ref);
  }

  BufferRef master_gradient() const { return Casts() ? master_gradient_ : flat_copy_; }
  bool Casts() const { return flat_.master_type() != axes_.precision.params; }

  /// Averaged gradients are one flat tensor first, then one of the masters' dtype.
  void FlattenGradients() {
    role_.Alloc(flat_copy_);
    role_.CopyKernel("flatten own part", role_.compute, averaged_, flat_copy_);
    if (Casts()) {
      role_.Alloc(master_gradient_);
      role_.CopyKernel("cast own part", role_.compute, flat_copy_, master_gradient_);
      role_.Free(flat_copy_);
    }
    FreeAveraged(averaged_);
  }

  Role& role_;
  const Axes& axes_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  FlatParameters flat_;
  AutogradGradients gradients_;
  ReductionBucket bucket_;
  OffloadedGradients offloaded_;
  bool reducing_ = false;  ///< hooks of the backward pass under way fill the bucket
  BufferRef averaged_, new_averaged_, flat_copy_, master_gradient_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeDeepSpeedPartitioned(Role& role) {
  return std::make_unique<DeepSpeedPartitioned>(role);
}

}  // namespace tidemark
