// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/gradcache/cached_encoders.h"

#include <algorithm>
#include <array>

#include "sim/strategies/autograd_gradients.h"
#include "sim/strategies/ddp/bucket_layout.h"
#include "sim/strategies/ddp/launch_bucket.h"
#include "sim/strategies/optimizer.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

class CachedEncoders : public DataParallel {
 public:
  explicit CachedEncoders(Role& role)
      : role_(role),
        axes_(role.job.axes),
        ranks_(role.job.layout.GradientRanks()),
        stream_(role.builder.AddStream("dp", StreamKind::collective)),
        group_(role.AddGroup("dp", ranks_, role.job.layout.tp)),
        everything_(OneBucket(role)),
        buckets_(BucketsByArrival(role)) {
    const auto trained = ParameterTable::Of::trained;
    const Precision& precision = axes_.precision;
    weights_.Declare(role_, "weight of", Category::parameter, precision.params, ParameterTable::Of::all, true);
    gradients_.Declare(role_, precision.gradients);
    slots_.Declare(role_, "bucket slot of", Category::bucket, precision.gradients, trained, true);
    optimizer_.Declare(role_, [&](std::int64_t position) { return TrainedSizes(role_, position); });
  }

  void BeginMicrobatch(const Microbatch&) override { in_forward_ = true; }
  void EndForward(const Microbatch&) override { in_forward_ = false; }
  void BeforeBackward(const Microbatch&, std::int64_t position) override { tower_ = TowerOf(position); }

  void EndBackward(const Microbatch& microbatch) override {
    if (microbatch.place.synchronises) {
      FinishReduction();
      encoder().synchronised = true;
    }
    encoder().has_gradients = true;
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    optimizer_.Step(role_, {[&](std::int64_t position) {
                      return gradients_.UpdatesOf(role_, position, [&](const ParameterAt& at) { return Weight(at); });
                    }});
    gradients_.Free(role_);
    for (Encoder& one : encoders_) {
      one.has_gradients = false;
    }
    role_.builder.Emit(End{Phase::optimizer});
  }

  void DiscardGradients(const Microbatch&) override { gradients_.Free(role_); }

  std::vector<std::int64_t> KeyBetweenMicrobatches() const override {
    std::vector<std::int64_t> key;
    for (const Encoder& one : encoders_) {
      key.push_back(one.has_gradients ? 1 : 0);
      key.push_back(one.synchronised ? 1 : 0);
    }
    return key;
  }

  BufferRef Weight(const ParameterAt& at) override { return weights_(role_, at); }

  BufferRef BeginGradient(const Microbatch&, const ParameterAt& at) override {
    return gradients_.Begin(role_, at, encoder().has_gradients);
  }

  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    gradients_.End(role_, at, encoder().has_gradients);
    if (!microbatch.place.synchronises) {
      return;
    }
    role_.CopyKernel("gradient to bucket", role_.compute, gradients_(role_, at), slots_(role_, at),
                     Rational(1, ranks_));
    for (const BucketMembers& bucket : layout().Arrive(at)) {
      Launch(bucket);
    }
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    return in_forward_ ? std::vector<std::int64_t>() : layout().Key(position);
  }
  void Shift(std::int64_t blocks) override { layout().Shift(blocks); }

  BufferRef FinalGradient(const ParameterAt& at) override { return gradients_(role_, at); }

 private:
  struct Encoder {
    bool has_gradients = false;
    bool synchronised = false;  ///< once in this step
  };

  /// The tower of a block; the loss has no parameters, so it may count as the first.
  std::size_t TowerOf(std::int64_t position) const {
    return static_cast<std::size_t>(std::max<std::int64_t>(role_.stage.BlockAt(position).tower, 0));
  }
  Encoder& encoder() { return encoders_[tower_]; }

  /// The reducer rebuilds its buckets in the first forward pass behind one that synchronised.
  BucketLayout& layout() const {
    return role_.step != StepKind::first || encoders_[tower_].synchronised ? *buckets_ : *everything_;
  }

  /// Launches what is left of this encoder's buckets, waits for all, and copies the result back.
  void FinishReduction() {
    for (BucketMembers bucket : layout().Finish()) {
      std::erase_if(bucket, [&](const ParameterAt& member) { return TowerOf(member.position) != tower_; });
      Launch(bucket);
    }
    role_.builder.Order(role_.compute, stream_, "reduced");
    EachTrained(role_, [&](const ParameterAt& at) {
      if (TowerOf(at.position) == tower_) {
        role_.CopyKernel("gradient from bucket", role_.compute, slots_(role_, at), gradients_(role_, at));
      }
    });
  }

  void Launch(const BucketMembers& bucket) {
    std::int64_t elements = 0;
    std::vector<BufferRef> reduced;
    for (const ParameterAt& member : bucket) {
      elements += ParameterOf(role_, member).elements;
      reduced.push_back(slots_(role_, member));
    }
    LaunchBucket(role_, stream_, group_, {.dtype = axes_.precision.gradients}, elements, reduced);
  }

  Role& role_;
  const Axes& axes_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  std::unique_ptr<BucketLayout> everything_, buckets_;
  bool in_forward_ = false;
  std::size_t tower_ = 0;  ///< whose pass is under way
  std::array<Encoder, 2> encoders_;
  AutogradGradients gradients_;
  ParameterTable weights_, slots_;
  OptimizerState optimizer_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeCachedEncoders(Role& role) { return std::make_unique<CachedEncoders>(role); }

}  // namespace tidemark
