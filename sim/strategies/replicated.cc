// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/replicated.h"

#include <algorithm>
#include <string>

#include "sim/strategies/optimizer.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

/// The bucket that gradients are being put into.
struct Bucket {
  std::vector<ParameterAt> members;
  Bytes bytes;
  bool first = true;  ///< the window's first bucket has a limit of its own
};

class Replicated : public DataParallel {
 public:
  explicit Replicated(Role& role) : role_(role), axes_(role.job.axes), ranks_(role.job.layout.dp) {
    stream_ = role.builder.AddStream("dp", StreamKind::collective);
    group_ = role.builder.AddGroup(
        {"dp", ranks_, std::clamp<std::int64_t>(role.job.machine.devices_per_node / role.job.layout.tp, 1, ranks_)});
    DeclareParameters();
    DeclareStates();
  }

  void BeginMicrobatch(const Microbatch& microbatch) override {
    if (role_.step == StepKind::second && microbatch.first() && !RebuildsInFirstStep()) {
      Rebuild();
    }
  }

  void EndBackward(const Microbatch& microbatch) override {
    if (!Synchronises(microbatch)) {
      if (HasAccumulator()) {
        role_.EachBlock([&](std::int64_t position) {
          ForEachTrained(role_, position, [&](const ParameterAt& at) {
            role_.AddKernel("accumulate gradient", role_.compute, Gradient(at), accumulators_(role_, at));
            role_.Free(Gradient(at));
          });
        });
      }
      return;
    }
    if (OneBucket(microbatch)) {
      JoinEverything();
    }
    Flush();
    bucket_.first = true;
    role_.builder.Order(role_.compute, stream_, "reduced");
    if (!View()) {
      role_.EachBlock([&](std::int64_t position) {
        ForEachTrained(role_, position, [&](const ParameterAt& at) {
          role_.CopyKernel("gradient from bucket", role_.compute, Slot(at), Gradient(at));
          if (HasAccumulator()) {
            role_.Free(Gradient(at));  // nanotron's accumulator sets .grad to None after every backward
          }
        });
      });
    }
    if (role_.step == StepKind::first && microbatch.first() && RebuildsInFirstStep()) {
      Rebuild();  // the next forward follows at once
    }
  }

  /// All updates first, then zero_grad: in the first step moments appear beside a full set of gradients.
  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    role_.EachBlock([&](std::int64_t position) { Update(position); });
    ZeroGradients();
    role_.builder.Emit(End{Phase::optimizer});
    if (axes_.shard.optimizer && ranks_ > 1) {
      role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
      role_.builder.Order(stream_, role_.compute, "updated");
      role_.EachBlock([&](std::int64_t position) { GatherUpdated(position); });
      role_.builder.Order(role_.compute, stream_, "parameters gathered");
      role_.builder.Emit(End{Phase::gather});
    }
  }

  void DiscardGradients(const Microbatch&) override { ZeroGradients(); }

  BufferRef Weight(const ParameterAt& at) override { return weights_(role_, at); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    const BufferRef ref = GradientIsNew(microbatch) ? Gradient(at) : contributions_(role_, at);
    role_.Alloc(ref);
    return ref;
  }

  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    if (!GradientIsNew(microbatch)) {
      const BufferRef contribution = contributions_(role_, at);
      const BufferRef gradient = LivesInBucket(microbatch) ? Slot(at) : Gradient(at);
      role_.AddKernel("accumulate gradient", role_.compute, contribution, gradient);
      role_.Free(contribution);
    }
    if (!Synchronises(microbatch)) {
      return;
    }
    if (!LivesInBucket(microbatch)) {
      role_.CopyKernel("gradient to bucket", role_.compute, Gradient(at), Slot(at));
      if (View()) {
        role_.Free(Gradient(at));
      }
    }
    if (!OneBucket(microbatch)) {
      Join(at);
    }
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    std::vector<std::int64_t> key{bucket_.bytes.count(), bucket_.first ? 1 : 0};
    for (const ParameterAt& member : bucket_.members) {
      key.push_back(role_.KeyOf(member.position, position));
      key.push_back(member.parameter);
    }
    return key;
  }

  void Shift(std::int64_t blocks) override {
    const std::size_t run = role_.stage.RunOf(role_.current());
    for (ParameterAt& member : bucket_.members) {
      member.position += role_.stage.RunOf(member.position) == run ? blocks : 0;
    }
  }

  BufferRef FinalGradient(const ParameterAt& at) override {
    return HasAccumulator() ? accumulators_(role_, at) : View() ? Slot(at) : Gradient(at);
  }

 private:
  bool Synchronises(const Microbatch& microbatch) const { return microbatch.place.synchronises; }
  bool HasAccumulator() const { return axes_.precision.accumulate != axes_.precision.gradients; }
  /// The first synchronised backward of a run uses one bucket of everything; the forward behind it rebuilds the buckets
  /// in the order in which gradients arrived.
  bool OneBucket(const Microbatch& microbatch) const {
    return role_.step == StepKind::first && (axes_.sync.when == Sync::When::last || microbatch.first());
  }
  bool RebuildsInFirstStep() const { return axes_.sync.when == Sync::When::every && role_.job.accumulation_steps > 1; }
  /// Gradients that still view the old buckets hold them until they have moved: when the window goes on, or when they
  /// were zeroed in place. Otherwise the old buckets are gone before the new ones appear.
  void Rebuild() {
    if (View() && (RebuildsInFirstStep() || StaysAllocated())) {
      role_.Alloc({old_buckets_, {}});
      role_.Free({old_buckets_, {}});
    }
  }
  bool View() const { return axes_.buffers.gradient_as_bucket_view && !HasAccumulator(); }
  /// Gradients zeroed in place stay allocated from the second step on.
  bool StaysAllocated() const {
    return !axes_.buffers.set_to_none && !HasAccumulator() && role_.step != StepKind::first;
  }
  /// With views, a synchronised backward re-points `.grad` to the bucket; it stays there until it is set to none.
  bool LivesInBucket(const Microbatch& microbatch) const {
    return View() && (StaysAllocated() || microbatch.place.reduced);
  }
  /// The backward pass writes `.grad` itself, because none exists.
  bool GradientIsNew(const Microbatch& microbatch) const {
    return HasAccumulator() || (microbatch.first() && !StaysAllocated());
  }

  BufferRef Gradient(const ParameterAt& at) const { return gradients_(role_, at); }
  BufferRef Slot(const ParameterAt& at) const { return slots_(role_, at); }

  void DeclareParameters() {
    const Precision& precision = axes_.precision;
    const auto trained = ParameterTable::Of::trained;
    weights_.Declare(role_, "weight of", Category::parameter, precision.params, ParameterTable::Of::all, true);
    gradients_.Declare(role_, "gradient of", Category::gradient, precision.gradients, trained,
                       StaysAllocated() && !View());
    contributions_.Declare(role_, "new gradient of", Category::gradient, precision.gradients, trained, false);
    slots_.Declare(role_, "bucket slot of", Category::bucket, precision.gradients, trained, true);
    if (HasAccumulator()) {
      accumulators_.Declare(role_, "accumulated gradient of", Category::accumulator, precision.accumulate, trained,
                            true);
    }
  }

  void DeclareStates() {
    std::vector<std::int64_t> elements;
    for (const BlockRun& run : role_.stage.runs) {
      elements.push_back(UpdatedElements(run.block));
    }
    std::int64_t trained = 0;
    for (const BlockRun& run : role_.stage.runs) {
      trained += TrainableElements(run.block) * run.count;
    }
    old_buckets_ = role_.builder.AddBuffer(
        {"buckets before their rebuild", Category::bucket, axes_.precision.gradients, trained, {1, 1}, role_.compute});
    if (axes_.precision.master) {
      masters_ = role_.PerBlock("master weights of", Category::optimizer, *axes_.precision.master, role_.compute,
                                elements, true, true);
    }
    optimizer_.Declare(role_, elements);
  }

  /// Elements of one block that this rank's optimizer updates.
  std::int64_t UpdatedElements(const Block& block) const {
    return axes_.shard.optimizer ? CeilDiv(TrainableElements(block), ranks_) : TrainableElements(block);
  }

  void Join(const ParameterAt& at) {
    bucket_.members.push_back(at);
    bucket_.bytes += SizeOf(axes_.precision.gradients) * ParameterOf(role_, at).elements;
    if (bucket_.bytes >= (bucket_.first ? axes_.sync.first_bucket_bytes : axes_.sync.bucket_bytes)) {
      Flush();
      bucket_.first = false;
    }
  }

  /// All gradients, in the order in which they arrive.
  void JoinEverything() {
    for (std::int64_t position = role_.stage.blocks - 1; position >= 0; --position) {
      ForEachTrained(role_, position, [&](const ParameterAt& at) { bucket_.members.push_back(at); });
    }
  }

  void Flush() {
    std::int64_t elements = 0;
    std::vector<BufferRef> reduced;
    for (const ParameterAt& member : bucket_.members) {
      elements += ParameterOf(role_, member).elements;
      if (HasAccumulator()) {
        role_.AddKernel("accumulate gradient", role_.compute, Slot(member), accumulators_(role_, member));
      }
      reduced.push_back(HasAccumulator() ? accumulators_(role_, member) : Slot(member));
    }
    bucket_.members.clear();
    bucket_.bytes = Bytes(0);
    if (elements == 0 || ranks_ == 1) {
      return;
    }
    role_.builder.Order(stream_, role_.compute, "bucket ready");
    const bool scatters = axes_.shard.optimizer;
    role_.builder.Emit(Collective{role_.builder.Named(scatters ? "scatter bucket" : "reduce bucket"),
                                  scatters ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                                  HasAccumulator() ? Reduction::avg : Reduction::sum,
                                  HasAccumulator() ? Rational(1) : Rational(1, ranks_), group_,
                                  HasAccumulator() ? axes_.precision.accumulate : axes_.precision.gradients, elements,
                                  stream_, reduced, reduced});
    if (!axes_.sync.overlap) {
      role_.builder.Order(role_.compute, stream_, "bucket reduced");
    }
  }

  void Update(std::int64_t position) {
    const std::int64_t elements = UpdatedElements(role_.stage.BlockAt(position));
    if (elements == 0) {
      return;
    }
    std::vector<BufferRef> gradients, weights;
    if (axes_.precision.master) {
      weights.push_back(role_.Ref(masters_, position));
    }
    ForEachTrained(role_, position, [&](const ParameterAt& at) {
      gradients.push_back(FinalGradient(at));
      weights.push_back(Weight(at));
    });
    const DType gradient_type = HasAccumulator() ? axes_.precision.accumulate : axes_.precision.gradients;
    const Bytes moved = SizeOf(gradient_type) + SizeOf(axes_.precision.params) * (axes_.precision.master ? 1 : 2) +
                        (axes_.precision.master ? SizeOf(*axes_.precision.master) * 2 : Bytes(0));
    optimizer_.Update(role_, position, elements, gradients, weights, moved);
  }

  void ZeroGradients() {
    EachTrained(role_, [&](const ParameterAt& at) { ZeroGradient(at); });
  }

  void ZeroGradient(const ParameterAt& at) {
    if (HasAccumulator() || StaysAllocated()) {
      role_.ZeroKernel("zero gradient", role_.compute, Work::optimizer, FinalGradient(at));
    } else if (!View()) {
      role_.Free(Gradient(at));
    }
  }

  void GatherUpdated(std::int64_t position) {
    const std::int64_t elements = TrainableElements(role_.stage.BlockAt(position));
    if (elements == 0) {
      return;
    }
    std::vector<BufferRef> weights;
    ForEachTrained(role_, position, [&](const ParameterAt& at) { weights.push_back(Weight(at)); });
    role_.builder.Emit(Collective{role_.builder.Named("gather updated parameters"), CollectiveKind::all_gather,
                                  Reduction::none, Rational(1), group_, axes_.precision.params, elements, stream_,
                                  weights, weights});
  }

  Role& role_;
  const Axes& axes_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  ParameterTable weights_, gradients_, contributions_, slots_, accumulators_;
  BufferId old_buckets_;
  RunBuffers masters_;
  OptimizerState optimizer_;
  Bucket bucket_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeReplicated(Role& role) { return std::make_unique<Replicated>(role); }

}  // namespace tidemark
