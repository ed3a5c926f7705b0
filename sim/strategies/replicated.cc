// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/replicated.h"

#include <algorithm>
#include <string>

#include "sim/strategies/optimizer.h"

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
    if (role_.step == StepKind::second && microbatch.first && !RebuildsInFirstStep()) {
      Rebuild();
    }
  }

  void EndBackward(const Microbatch& microbatch) override {
    if (!Synchronises(microbatch)) {
      if (HasAccumulator()) {
        role_.EachBlock([&](std::int64_t position) {
          ForEachTrainable(position, [&](const ParameterAt& at) {
            AddToAccumulator(at, Gradient(at));
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
        ForEachTrainable(position, [&](const ParameterAt& at) {
          Move("gradient from bucket", Slot(at), Gradient(at));
          if (HasAccumulator()) {
            role_.Free(Gradient(at));  // nanotron's accumulator sets .grad to None after every backward
          }
        });
      });
    }
    if (role_.step == StepKind::first && microbatch.first && RebuildsInFirstStep()) {
      Rebuild();  // the next forward follows at once
    }
  }

  /// All updates first, then zero_grad: in the first step moments appear beside a full set of gradients.
  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    role_.EachBlock([&](std::int64_t position) { Update(position); });
    role_.EachBlock(
        [&](std::int64_t position) { ForEachTrainable(position, [&](const ParameterAt& at) { ZeroGradient(at); }); });
    role_.builder.Emit(End{Phase::optimizer});
    if (axes_.shard.optimizer && ranks_ > 1) {
      role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
      role_.builder.Order(stream_, role_.compute, "updated");
      role_.EachBlock([&](std::int64_t position) { GatherUpdated(position); });
      role_.builder.Order(role_.compute, stream_, "parameters gathered");
      role_.builder.Emit(End{Phase::gather});
    }
  }

  BufferRef Weight(const ParameterAt& at) override { return Of(weights_, at); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    const BufferRef ref = GradientIsNew(microbatch) ? Gradient(at) : Of(contributions_, at);
    role_.Alloc(ref);
    return ref;
  }

  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    if (!GradientIsNew(microbatch)) {
      const BufferRef contribution = Of(contributions_, at);
      const BufferRef gradient = LivesInBucket(microbatch) ? Slot(at) : Gradient(at);
      const Buffer& buffer = role_.builder.buffer(contribution.buffer);
      role_.MemoryKernel("accumulate gradient", role_.compute, Work::compute, {contribution, gradient}, {gradient},
                         buffer.elements, buffer.bytes() * 3);
      role_.Free(contribution);
    }
    if (!Synchronises(microbatch)) {
      return;
    }
    if (!LivesInBucket(microbatch)) {
      Move("gradient to bucket", Gradient(at), Slot(at));
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
    return HasAccumulator() ? Of(accumulators_, at) : View() ? Slot(at) : Gradient(at);
  }

 private:
  using ParameterBuffers = std::vector<std::vector<BufferId>>;  ///< per run and parameter

  bool Synchronises(const Microbatch& microbatch) const {
    return axes_.sync.when == Sync::When::every || microbatch.last;
  }
  bool HasAccumulator() const { return axes_.precision.accumulate != axes_.precision.gradients; }
  /// The first synchronised backward of a run uses one bucket of everything; the forward behind it rebuilds the buckets
  /// in the order in which gradients arrived.
  bool OneBucket(const Microbatch& microbatch) const {
    return role_.step == StepKind::first && (axes_.sync.when == Sync::When::last || microbatch.first);
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
    return View() && (StaysAllocated() || (axes_.sync.when == Sync::When::every && !microbatch.first));
  }
  /// The backward pass writes `.grad` itself, because none exists.
  bool GradientIsNew(const Microbatch& microbatch) const {
    return HasAccumulator() || (microbatch.first && !StaysAllocated());
  }

  BufferRef Gradient(const ParameterAt& at) const { return Of(gradients_, at); }
  BufferRef Slot(const ParameterAt& at) const { return Of(slots_, at); }
  BufferRef Of(const ParameterBuffers& buffers, const ParameterAt& at) const {
    return {buffers[role_.stage.RunOf(at.position)][at.parameter], {role_.At(at.position), Index{}}};
  }
  const Parameter& ParameterOf(const ParameterAt& at) const {
    return role_.stage.BlockAt(at.position).parameters[at.parameter];
  }

  template <class Visit>
  void ForEachTrainable(std::int64_t position, Visit visit) const {
    const std::vector<Parameter>& parameters = role_.stage.BlockAt(position).parameters;
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].trainable && !parameters[i].tied) {
        visit(ParameterAt{position, i});
      }
    }
  }

  void DeclareParameters() {
    const Precision& precision = axes_.precision;
    const bool grad_stays = StaysAllocated() && !View();
    for (const BlockRun& run : role_.stage.runs) {
      for (ParameterBuffers* table : {&weights_, &gradients_, &contributions_, &slots_, &accumulators_}) {
        table->emplace_back(run.block.parameters.size());
      }
      for (std::size_t i = 0; i < run.block.parameters.size(); ++i) {
        const Parameter& parameter = run.block.parameters[i];
        const auto declare = [&](const char* what, Category category, DType dtype, bool stays) {
          return role_.builder.AddBuffer({what + run.block.name + "." + parameter.name,
                                          category,
                                          dtype,
                                          parameter.elements,
                                          {run.count, 1},
                                          role_.compute,
                                          Place::device,
                                          stays,
                                          stays});
        };
        if (parameter.tied) {
          continue;
        }
        weights_.back()[i] = declare("weight of ", Category::parameter, precision.params, true);
        if (!parameter.trainable) {
          continue;
        }
        gradients_.back()[i] = declare("gradient of ", Category::gradient, precision.gradients, grad_stays);
        contributions_.back()[i] = declare("new gradient of ", Category::gradient, precision.gradients, false);
        slots_.back()[i] = declare("bucket slot of ", Category::bucket, precision.gradients, true);
        if (HasAccumulator()) {
          accumulators_.back()[i] =
              declare("accumulated gradient of ", Category::accumulator, precision.accumulate, true);
        }
      }
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

  void Move(const char* name, const BufferRef& from, const BufferRef& to) {
    const Buffer& buffer = role_.builder.buffer(from.buffer);
    role_.MemoryKernel(name, role_.compute, Work::compute, {from}, {to}, buffer.elements, buffer.bytes() * 2);
  }

  void AddToAccumulator(const ParameterAt& at, const BufferRef& gradient) {
    const BufferRef accumulator = Of(accumulators_, at);
    const Buffer& buffer = role_.builder.buffer(accumulator.buffer);
    role_.MemoryKernel("accumulate gradient", role_.compute, Work::compute, {gradient, accumulator}, {accumulator},
                       buffer.elements, buffer.bytes() * 2 + role_.builder.buffer(gradient.buffer).bytes());
  }

  void Join(const ParameterAt& at) {
    bucket_.members.push_back(at);
    bucket_.bytes += SizeOf(axes_.precision.gradients) * ParameterOf(at).elements;
    if (bucket_.bytes >= (bucket_.first ? axes_.sync.first_bucket_bytes : axes_.sync.bucket_bytes)) {
      Flush();
      bucket_.first = false;
    }
  }

  /// All gradients, in the order in which they arrive.
  void JoinEverything() {
    for (std::int64_t position = role_.stage.blocks - 1; position >= 0; --position) {
      ForEachTrainable(position, [&](const ParameterAt& at) { bucket_.members.push_back(at); });
    }
  }

  void Flush() {
    std::int64_t elements = 0;
    std::vector<BufferRef> reduced;
    for (const ParameterAt& member : bucket_.members) {
      elements += ParameterOf(member).elements;
      if (HasAccumulator()) {
        AddToAccumulator(member, Slot(member));
      }
      reduced.push_back(HasAccumulator() ? Of(accumulators_, member) : Slot(member));
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
    ForEachTrainable(position, [&](const ParameterAt& at) {
      gradients.push_back(FinalGradient(at));
      weights.push_back(Weight(at));
    });
    const DType gradient_type = HasAccumulator() ? axes_.precision.accumulate : axes_.precision.gradients;
    const Bytes moved = SizeOf(gradient_type) + SizeOf(axes_.precision.params) * (axes_.precision.master ? 1 : 2) +
                        (axes_.precision.master ? SizeOf(*axes_.precision.master) * 2 : Bytes(0));
    optimizer_.Update(role_, position, elements, gradients, weights, moved);
  }

  void ZeroGradient(const ParameterAt& at) {
    const auto zero = [&](const BufferRef& ref) {
      const Buffer& buffer = role_.builder.buffer(ref.buffer);
      role_.MemoryKernel("zero gradient", role_.compute, Work::optimizer, {}, {ref}, buffer.elements, buffer.bytes());
    };
    if (HasAccumulator() || StaysAllocated()) {
      zero(FinalGradient(at));
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
    ForEachTrainable(position, [&](const ParameterAt& at) { weights.push_back(Weight(at)); });
    role_.builder.Emit(Collective{role_.builder.Named("gather updated parameters"), CollectiveKind::all_gather,
                                  Reduction::none, Rational(1), group_, axes_.precision.params, elements, stream_,
                                  weights, weights});
  }

  Role& role_;
  const Axes& axes_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  ParameterBuffers weights_, gradients_, contributions_, slots_, accumulators_;
  BufferId old_buckets_;
  RunBuffers masters_;
  OptimizerState optimizer_;
  Bucket bucket_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeReplicated(Role& role) { return std::make_unique<Replicated>(role); }

}  // namespace tidemark
