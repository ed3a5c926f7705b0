// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/deepspeed_bf16.h"

#include "sim/strategies/autograd_gradients.h"
#include "sim/strategies/deepspeed/deepspeed_flat.h"

namespace tidemark {
namespace {

class DeepSpeedBf16 : public DataParallel {
 public:
  explicit DeepSpeedBf16(Role& role)
      : role_(role),
        axes_(role.job.axes),
        ranks_(role.job.layout.GradientRanks()),
        stream_(role.builder.AddStream("dp", StreamKind::collective)),
        group_(role.AddGroup("dp", ranks_, role.job.layout.tp)),
        flat_(role, ranks_, FlatParameters::Moments::with_first_update) {
    const Precision& precision = axes_.precision;
    gradients_.Declare(role, precision.gradients);
    casts_.Declare(role, "cast gradient of", Category::gradient, precision.accumulate, TrainedElements, false, false,
                   WholeAsMasters());
    if (flat_.elements() > 0) {
      accumulated_ = {role.builder.AddBuffer({"flat gradient",
                                              Category::accumulator,
                                              precision.accumulate,
                                              flat_.padded(),
                                              {1, 1},
                                              role.compute,
                                              Place::device,
                                              true,
                                              true,
                                              {},
                                              flat_.Holds(Parts::all)}),
                      {}};
    }
    wire_ = flat_.Declare("cast flat gradient", Category::bucket, precision.reduce, flat_.padded(), role.compute,
                          flat_.Holds(Parts::all));
  }

  BufferRef Weight(const ParameterAt& at) override { return flat_.Weight(at); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    return gradients_.Begin(role_, at, !microbatch.first());
  }

  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    gradients_.End(role_, at, !microbatch.first());
  }

  void EndBackward(const Microbatch& microbatch) override {
    if (flat_.elements() == 0) {
      return;
    }
    EachTrained(role_, [&](const ParameterAt& at) { AddToFlat(at); });
    if (microbatch.place.synchronises) {
      Reduce();
    }
    if (!microbatch.place.last) {
      // What the next backward pass begins with; nothing reads them until then.
      EachTrained(role_, [&](const ParameterAt& at) {
        role_.ZeroKernel("zero gradient", role_.compute, Work::compute, gradients_(role_, at));
      });
    }
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    if (flat_.elements() > 0) {
      flat_.Update(accumulated_);
      flat_.CopyToWeights();
    }
    role_.builder.Emit(End{Phase::optimizer});
    role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
    if (flat_.elements() > 0) {
      flat_.Gather(stream_, group_);
      // clear_hp_grads at the end of step, and again in the engine's zero_grad behind it.
      Zero();
      gradients_.Free(role_);
      Zero();
    }
    role_.builder.Emit(End{Phase::gather});
  }

  void DiscardGradients(const Microbatch&) override {
    if (flat_.elements() > 0) {
      gradients_.Free(role_);
      Zero();
    }
  }

  std::vector<std::int64_t> Key(std::int64_t) const override { return {}; }
  void Shift(std::int64_t) override {}

  BufferRef FinalGradient(const ParameterAt&) override { return accumulated_; }

 private:
  /// hp_grad.add_(grad.to(fp32)), a transient copy per parameter.
  void AddToFlat(const ParameterAt& at) {
    const BufferRef cast = casts_(role_, at);
    const std::int64_t elements = ParameterOf(role_, at).elements;
    role_.Alloc(cast);
    role_.CopyKernel("cast gradient", role_.compute, gradients_(role_, at), cast);
    role_.MemoryKernel("accumulate flat gradient", role_.compute, Work::compute, {cast, accumulated_}, {accumulated_},
                       elements, SizeOf(axes_.precision.accumulate) * 3 * elements);
    role_.Free(cast);
  }

  void Reduce() {
    const bool casts = axes_.precision.reduce != axes_.precision.accumulate;
    const BufferRef wire = casts ? wire_ : accumulated_;
    if (casts) {
      role_.Alloc(wire);
      role_.CopyKernel("cast flat gradient", role_.compute, accumulated_, wire);
    }
    if (ranks_ > 1) {
      role_.builder.Order(stream_, role_.compute, "gradients accumulated");
      role_.builder.Emit(Collective{role_.builder.Named("reduce flat gradient"),
                                    CollectiveKind::all_reduce,
                                    Reduction::sum,
                                    Rational(1),
                                    group_,
                                    axes_.precision.reduce,
                                    flat_.padded(),
                                    stream_,
                                    {wire},
                                    {wire}});
      role_.builder.Order(role_.compute, stream_, "gradients reduced");
      role_.builder.Emit(Scale{role_.builder.Named("divide by ranks"), Rational(1, ranks_), role_.compute, wire});
    }
    if (casts) {
      role_.CopyKernel("flat gradient from cast", role_.compute, wire, accumulated_);
      role_.Free(wire);
    }
  }

  void Zero() { role_.ZeroKernel("zero flat gradient", role_.compute, Work::optimizer, accumulated_); }

  Role& role_;
  const Axes& axes_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  FlatParameters flat_;
  AutogradGradients gradients_;
  ParameterTable casts_;
  BufferRef accumulated_, wire_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeDeepSpeedBf16(Role& role) { return std::make_unique<DeepSpeedBf16>(role); }

}  // namespace tidemark
