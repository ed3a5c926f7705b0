// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/alpa/gradient_accumulation.h"

#include <vector>

#include "sim/strategies/parameter_order.h"
#include "sim/strategies/parameter_table.h"
#include "sim/strategies/updated_parameters.h"
#include "sim/strategies/xla/combined_buckets.h"
#include "sim/strategies/xla/train_state.h"
#include "sim/strategies/xla/versions.h"

namespace tidemark {
namespace {

class GradientAccumulation : public DataParallel {
 public:
  explicit GradientAccumulation(Role& role)
      : role_(role),
        axes_(role.job.axes),
        ranks_(role.job.layout.GradientRanks()),
        stream_(role.builder.AddStream("dp", StreamKind::collective)),
        group_(role.AddGroup("dp", ranks_, role.job.layout.tp)),
        state_(role),
        combines_everything_(CombinesEverything(role)),
        buckets_(BucketsOfCombiner(role)) {
    const DType dtype = axes_.precision.gradients;
    sums_.Declare(role, "accumulated gradient of", Category::accumulator, dtype, InPlace() ? 1 : 2);
    gradients_.Declare(role, "gradient of", Category::gradient, dtype, ParameterTable::Of::trained, false);
    slots_.Declare(role, "contiguous gradient of", Category::bucket, dtype, ParameterTable::Of::trained, false);
  }

  void BeginMicrobatch(const Microbatch& microbatch) override {
    in_forward_ = true;
    if (microbatch.first()) {
      BeginStep(microbatch);
    }
    if (Loop() == MicrobatchLoop::runtime) {
      Launch(role_, IsPipeline() ? "forward" : "accumulate_grad");
      if (!InPlace()) {
        EachTrained(role_, [&](const ParameterAt& at) { role_.Alloc(NewSum(microbatch, at)); });
      }
    } else if (Loop() == MicrobatchLoop::outside) {
      Launch(role_, "compute_grad");
    }
  }

  void EndForward(const Microbatch&) override { in_forward_ = false; }

  void BeforeBackward(const Microbatch&, std::int64_t position) override {
    if (IsPipeline() && IsFirstOfBackward(position)) {
      Launch(role_, "backward");
    }
  }

  void EndBackward(const Microbatch& microbatch) override {
    const bool synchronises = Synchronises(microbatch);
    if (CombinesOnTheWay(microbatch)) {
      for (const BucketMembers& bucket : buckets_->Finish()) {
        Combine(microbatch, bucket);
      }
    } else if (Executable() == Sync::Executable::branch && ranks_ > 1) {
      TakeBranch(microbatch);
    } else if (synchronises) {
      if (Loop() == MicrobatchLoop::runtime) {
        Launch(role_, "sync_grad");
      }
      CombineAll(microbatch);
    }
    if (synchronises) {
      role_.builder.Order(role_.compute, stream_, "reduced");
    }
    if (CombinesOnTheWay(microbatch) || synchronises) {
      EachTrained(role_, [&](const ParameterAt& at) { Take(microbatch, at); });
    } else if (EndsInSum(microbatch)) {
      EachTrained(role_, [&](const ParameterAt& at) { AddGradient(microbatch, at); });
    }
    EndExecutable(microbatch);
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    if (HasApplyGrad()) {
      Launch(role_, "apply_grad");
      state_.BeginReturning();
    }
    role_.EachBlock([&](std::int64_t position) { Update(position); });
    state_.EndReturning();
    EachTrained(role_, [&](const ParameterAt& at) { role_.Free(FinalGradient(at)); });
    role_.builder.Emit(End{Phase::optimizer});
    if (axes_.shard.optimizer && ranks_ > 1) {
      GatherUpdated();
    }
  }

  void DiscardGradients(const Microbatch&) override {
    EachTrained(role_, [&](const ParameterAt& at) { role_.Free(FinalGradient(at)); });
  }

  BufferRef Weight(const ParameterAt& at) override { return state_.Weight(at); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    const BufferRef ref = WritesSum(microbatch) ? NewSum(microbatch, at) : gradients_(role_, at);
    role_.Alloc(ref);
    return ref;
  }

  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    if (!WritesSum(microbatch) && !KeepsGradients(microbatch)) {
      AddGradient(microbatch, at);
    }
    if (CombinesOnTheWay(microbatch)) {
      for (const BucketMembers& bucket : buckets_->Arrive(at)) {
        Combine(microbatch, bucket);
      }
    }
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    if (in_forward_) {
      return {};
    }
    std::vector<std::int64_t> key = buckets_->Key(position);
    key.push_back(IsPipeline() && IsFirstOfBackward(position) ? 1 : 0);
    return key;
  }
  void Shift(std::int64_t blocks) override { buckets_->Shift(blocks); }

  /// Behind the last microbatch.
  BufferRef FinalGradient(const ParameterAt& at) override {
    return sums_(role_, at, {LoopId{}, role_.job.Microbatches() % 2, 0});
  }

 private:
  MicrobatchLoop Loop() const { return axes_.loop; }
  Sync::Executable Executable() const { return axes_.sync.executable; }
  bool IsPipeline() const { return role_.stage.count > 1; }
  bool IsFirstOfBackward(std::int64_t position) const { return position == role_.stage.blocks - 1; }
  bool HasApplyGrad() const { return Loop() == MicrobatchLoop::runtime || Loop() == MicrobatchLoop::outside; }
  /// Sums inside one executable are updated in place; between two executables only where they are donated.
  bool InPlace() const { return axes_.buffers.donate || !HasApplyGrad(); }

  bool Synchronises(const Microbatch& microbatch) const { return microbatch.place.synchronises && ranks_ > 1; }

  /// The executable of this microbatch holds the all-reduces, whether they are skipped or not.
  bool CombinesOnTheWay(const Microbatch& microbatch) const {
    switch (Loop()) {
      case MicrobatchLoop::outside:
        return ranks_ > 1;
      case MicrobatchLoop::unrolled:
        return Synchronises(microbatch);
      case MicrobatchLoop::runtime:
        return Executable() == Sync::Executable::skip_channels
                   ? ranks_ > 1
                   : Executable() == Sync::Executable::two && Synchronises(microbatch);
      case MicrobatchLoop::program:
        return false;
    }
    TIDEMARK_CHECK(false && "unknown loop");
  }

  /// No sum exists that the gradient could be added to: it becomes the sum.
  bool WritesSum(const Microbatch& microbatch) const {
    const bool starts_from_zeros = Loop() == MicrobatchLoop::runtime || Loop() == MicrobatchLoop::program;
    return !starts_from_zeros && microbatch.first();
  }

  /// Gradients are added up behind their all-reduce (or the place where it is skipped) and not before it.
  bool KeepsGradients(const Microbatch& microbatch) const {
    if (Loop() == MicrobatchLoop::outside) {
      return true;
    }
    return !axes_.sync.rewrite && ranks_ > 1 &&
           (Executable() != Sync::Executable::two || microbatch.place.synchronises);
  }

  /// With two buffers per sum, microbatch i reads buffer i mod 2 and writes the other.
  BufferRef OldSum(const Microbatch& microbatch, const ParameterAt& at) const {
    return sums_(role_, at, {microbatch.index.loop, microbatch.index.offset, 2});
  }
  BufferRef NewSum(const Microbatch& microbatch, const ParameterAt& at) const {
    return InPlace() ? OldSum(microbatch, at)
                     : sums_(role_, at, {microbatch.index.loop, microbatch.index.offset + 1, 2});
  }

  /// What the all-reduce stands on.
  BufferRef Operand(const Microbatch& microbatch, const ParameterAt& at) const {
    return KeepsGradients(microbatch) && !WritesSum(microbatch) ? gradients_(role_, at) : NewSum(microbatch, at);
  }

  void BeginStep(const Microbatch& microbatch) {
    if (Loop() == MicrobatchLoop::outside) {
      return;
    }
    if (Loop() == MicrobatchLoop::runtime) {
      Launch(role_, "allocate_zero_buffers");
    } else {
      Launch(role_, "train_step");
      state_.BeginReturning();
    }
    if (Loop() != MicrobatchLoop::unrolled) {
      EachTrained(role_, [&](const ParameterAt& at) {
        role_.Alloc(OldSum(microbatch, at));
        role_.ZeroKernel("zero gradient", role_.compute, Work::compute, OldSum(microbatch, at));
      });
    }
  }

  void Add(const Microbatch& microbatch, const ParameterAt& at, const BufferRef& addend) {
    const BufferRef old_sum = OldSum(microbatch, at), new_sum = NewSum(microbatch, at);
    const Buffer& buffer = role_.builder.buffer(new_sum.buffer);
    role_.MemoryKernel("accumulate gradient", role_.compute, Work::compute, {addend, old_sum}, {new_sum},
                       buffer.elements, buffer.bytes() * 3);
  }

  void AddGradient(const Microbatch& microbatch, const ParameterAt& at) {
    Add(microbatch, at, gradients_(role_, at));
    role_.Free(gradients_(role_, at));
  }

  /// All of them as one loop per run of blocks, which is how a bucket of everything is written.
  template <class Body>
  void EachMember(const BucketMembers& bucket, Body body) {
    if (combines_everything_) {
      EachTrained(role_, body);
      return;
    }
    for (const ParameterAt& member : bucket) {
      body(member);
    }
  }

  /// One merged all-reduce: copied together, unless its operands are reduced where they are.
  void Combine(const Microbatch& microbatch, const BucketMembers& bucket) {
    if (axes_.buffers.contiguous_gradients) {
      EachMember(bucket, [&](const ParameterAt& at) {
        role_.Alloc(slots_(role_, at));
        role_.CopyKernel("gradient to contiguous buffer", role_.compute, Operand(microbatch, at), slots_(role_, at));
        if (EndsInSum(microbatch)) {
          role_.Free(gradients_(role_, at));
        }
      });
    }
    if (!microbatch.place.synchronises) {
      return;
    }
    std::int64_t elements = 0;
    std::vector<BufferRef> reduced;
    for (const ParameterAt& member : bucket) {
      elements += ParameterOf(role_, member).elements;
      reduced.push_back(axes_.buffers.contiguous_gradients ? slots_(role_, member) : Operand(microbatch, member));
    }
    if (elements == 0) {
      return;
    }
    const bool scatters = axes_.sync.collective == CollectiveKind::reduce_scatter;
    role_.builder.Order(stream_, role_.compute, "gradients ready");
    role_.builder.Emit(Collective{role_.builder.Named(scatters ? "scatter gradients" : "reduce gradients"),
                                  axes_.sync.collective, Reduction::sum, Rational(1), group_, axes_.precision.gradients,
                                  elements, stream_, reduced, reduced});
  }

  /// A microbatch's own gradient, once it is in the contiguous buffer; a function that returns gradients needs it
  /// still.
  bool EndsInSum(const Microbatch& microbatch) const {
    return KeepsGradients(microbatch) && Loop() != MicrobatchLoop::outside;
  }

  void CombineAll(const Microbatch& microbatch) {
    std::vector<BucketMembers> complete;
    for (const ParameterAt& at : ArrivalOrder(role_)) {
      for (const BucketMembers& bucket : buckets_->Arrive(at)) {
        complete.push_back(bucket);
      }
    }
    for (const BucketMembers& bucket : buckets_->Finish()) {
      complete.push_back(bucket);
    }
    for (const BucketMembers& bucket : complete) {
      Combine(microbatch, bucket);
    }
  }

  /// A conditional: the host fetches its predicate, and its buffers are those of the larger branch.
  void TakeBranch(const Microbatch& microbatch) {
    role_.builder.Emit(HostSync{role_.compute});
    if (microbatch.place.synchronises) {
      CombineAll(microbatch);
    } else if (axes_.buffers.contiguous_gradients) {
      EachTrained(role_, [&](const ParameterAt& at) { role_.Alloc(slots_(role_, at)); });
      EachTrained(role_, [&](const ParameterAt& at) { role_.Free(slots_(role_, at)); });
    }
  }

  /// Out of the contiguous buffer, and into the sum where that comes behind the all-reduce.
  void Take(const Microbatch& microbatch, const ParameterAt& at) {
    if (!axes_.buffers.contiguous_gradients) {
      if (EndsInSum(microbatch)) {
        AddGradient(microbatch, at);
      }
      return;
    }
    if (EndsInSum(microbatch)) {
      Add(microbatch, at, slots_(role_, at));
    } else {
      role_.CopyKernel("gradient from contiguous buffer", role_.compute, slots_(role_, at), Operand(microbatch, at));
    }
    role_.Free(slots_(role_, at));
  }

  /// Old gradients end with the executable that returned new ones. A loop outside adds them up in one of its own.
  void EndExecutable(const Microbatch& microbatch) {
    if (Loop() == MicrobatchLoop::outside && !WritesSum(microbatch)) {
      Launch(role_, "add_gradients");
      EachTrained(role_, [&](const ParameterAt& at) {
        if (!InPlace()) {
          role_.Alloc(NewSum(microbatch, at));
        }
      });
      EachTrained(role_, [&](const ParameterAt& at) { AddGradient(microbatch, at); });
    }
    if (!InPlace() && !WritesSum(microbatch)) {
      EachTrained(role_, [&](const ParameterAt& at) { role_.Free(OldSum(microbatch, at)); });
    }
  }

  /// XLA fuses the division by M into the update: a kernel of its own here, without work.
  void Update(std::int64_t position) {
    std::vector<BufferRef> gradients;
    ForEachTrained(role_, position, [&](const ParameterAt& at) {
      gradients.push_back(FinalGradient(at));
      role_.MemoryKernel("divide by microbatches", role_.compute, Work::optimizer, {gradients.back()},
                         {gradients.back()}, 0, Bytes(0), Rational(1, role_.job.accumulation_steps));
    });
    state_.Update(position, gradients);
  }

  void GatherUpdated() {
    std::int64_t elements = 0;
    std::vector<BufferRef> weights;
    for (const ParameterAt& at : DefinitionOrder(role_)) {
      elements += ParameterOf(role_, at).elements;
      weights.push_back(state_.Weight(at));
    }
    if (elements == 0) {
      return;
    }
    role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
    BetweenUpdateAndUse(role_, stream_,
                        [&] { tidemark::GatherUpdated(role_, stream_, group_, elements, weights, weights); });
    role_.builder.Emit(End{Phase::gather});
  }

  Role& role_;
  const Axes& axes_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  TrainState state_;
  bool combines_everything_;
  std::unique_ptr<BucketLayout> buckets_;
  bool in_forward_ = false;
  VersionTable sums_;
  ParameterTable gradients_, slots_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeAlpa(Role& role) { return std::make_unique<GradientAccumulation>(role); }

}  // namespace tidemark
