// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/deepspeed_plain.h"

#include <optional>

#include "sim/strategies/autograd_gradients.h"
#include "sim/strategies/deepspeed/deepspeed_flat.h"
#include "sim/strategies/optimizer.h"
#include "sim/strategies/parameter_order.h"

namespace tidemark {
namespace {

class DeepSpeedPlain : public DataParallel {
 public:
  explicit DeepSpeedPlain(Role& role)
      : role_(role),
        axes_(role.job.axes),
        ranks_(role.job.layout.GradientRanks()),
        stream_(role.builder.AddStream("dp", StreamKind::collective)),
        group_(role.AddGroup("dp", ranks_, role.job.layout.tp)) {
    const Precision& precision = axes_.precision;
    const auto declare = [&](ParameterTable& table, const char* what, Category category, DType dtype) {
      table.Declare(role, what, category, dtype, ParameterTable::Of::trained, false);
    };
    gradients_.Declare(role, precision.gradients);
    declare(slots_, "bucket slot of", Category::bucket, precision.gradients);
    declare(casts_, "cast bucket slot of", Category::bucket, precision.reduce);
    if (precision.master) {
      flat_.emplace(role, 1, FlatParameters::Moments::before_first_step);
      master_gradients_.Declare(role, "cast gradient of", Category::gradient, *precision.master, TrainedElements, false,
                                false, WholeAsMasters());
      flat_gradient_ = flat_->Declare("flat gradient", Category::gradient, *precision.master, flat_->elements(),
                                      role.compute, flat_->Holds(Parts::all, true));
      return;
    }
    weights_.Declare(role, "weight of", Category::parameter, precision.params, ParameterTable::Of::all, true);
    optimizer_.Declare(role, [&](std::int64_t position) { return TrainedSizes(role_, position); });
  }

  BufferRef Weight(const ParameterAt& at) override { return flat_ ? flat_->Weight(at) : weights_(role_, at); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    return gradients_.Begin(role_, at, !microbatch.first());
  }

  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    gradients_.End(role_, at, !microbatch.first());
  }

  void EndBackward(const Microbatch& microbatch) override {
    if (!microbatch.place.synchronises) {
      return;
    }
    std::vector<ParameterAt> bucket;
    std::int64_t elements = 0;
    for (const ParameterAt& at : DefinitionOrder(role_)) {
      bucket.push_back(at);
      elements += ParameterOf(role_, at).elements;
      if (elements > axes_.sync.bucket_elements) {
        Reduce(bucket, elements);
        bucket.clear();
        elements = 0;
      }
    }
    if (!bucket.empty()) {
      Reduce(bucket, elements);
    }
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    flat_ ? UpdateMasters() : UpdateWeights();
    role_.builder.Emit(End{Phase::optimizer});
  }

  void DiscardGradients(const Microbatch&) override { gradients_.Free(role_); }

  std::vector<std::int64_t> Key(std::int64_t) const override { return {}; }
  void Shift(std::int64_t) override {}

  BufferRef FinalGradient(const ParameterAt& at) override { return gradients_(role_, at); }

 private:
  /// allreduce_and_copy. A bucket of one parameter is a view of it, not a copy.
  void Reduce(const std::vector<ParameterAt>& bucket, std::int64_t elements) {
    const ParameterTable& flat = bucket.size() > 1 ? slots_ : gradients_.table();
    if (bucket.size() > 1) {
      EachMember(role_, bucket, [&](const ParameterAt& at) { role_.Alloc(slots_(role_, at)); });
      EachMember(role_, bucket, [&](const ParameterAt& at) {
        role_.CopyKernel("gradient to bucket", role_.compute, gradients_(role_, at), slots_(role_, at));
      });
    }
    ReduceInWireType(bucket, elements, flat);
    if (bucket.size() > 1) {
      EachMember(role_, bucket, [&](const ParameterAt& at) {
        role_.CopyKernel("gradient from bucket", role_.compute, slots_(role_, at), gradients_(role_, at));
      });
      EachMember(role_, bucket, [&](const ParameterAt& at) { role_.Free(slots_(role_, at)); });
    }
  }

  void ReduceInWireType(const std::vector<ParameterAt>& bucket, std::int64_t elements, const ParameterTable& flat) {
    const bool casts = axes_.precision.reduce != axes_.precision.gradients;
    const ParameterTable& wire = casts ? casts_ : flat;
    if (casts) {
      EachMember(role_, bucket, [&](const ParameterAt& at) { role_.Alloc(casts_(role_, at)); });
      EachMember(role_, bucket, [&](const ParameterAt& at) {
        role_.CopyKernel("cast bucket", role_.compute, flat(role_, at), casts_(role_, at));
      });
    }
    AllReduce(bucket, elements, wire);
    if (casts) {
      EachMember(role_, bucket, [&](const ParameterAt& at) {
        role_.CopyKernel("bucket from cast", role_.compute, casts_(role_, at), flat(role_, at));
      });
      EachMember(role_, bucket, [&](const ParameterAt& at) { role_.Free(casts_(role_, at)); });
    }
  }

  /// Sums, then multiplies by 1/N: postscale_gradients is the default.
  void AllReduce(const std::vector<ParameterAt>& bucket, std::int64_t elements, const ParameterTable& wire) {
    if (ranks_ == 1) {
      return;
    }
    std::vector<BufferRef> buffers;
    for (const ParameterAt& at : bucket) {
      buffers.push_back(wire(role_, at));
    }
    role_.builder.Order(stream_, role_.compute, "bucket ready");
    role_.builder.Emit(Collective{role_.builder.Named("reduce bucket"), CollectiveKind::all_reduce, Reduction::sum,
                                  Rational(1), group_, axes_.precision.reduce, elements, stream_, buffers, buffers});
    role_.builder.Order(role_.compute, stream_, "bucket reduced");
    EachMember(role_, bucket, [&](const ParameterAt& at) {
      role_.builder.Emit(
          Scale{role_.builder.Named("divide by ranks"), Rational(1, ranks_), role_.compute, wire(role_, at)});
    });
  }

  /// FP16_Optimizer.step.
  void UpdateMasters() {
    if (flat_->elements() == 0) {
      return;
    }
    EachTrained(role_, [&](const ParameterAt& at) {
      role_.Alloc(master_gradients_(role_, at));
      role_.CopyKernel("cast gradient", role_.compute, gradients_(role_, at), master_gradients_(role_, at));
    });
    std::vector<BufferRef> casts;
    for (const ParameterAt& at : DefinitionOrder(role_)) {
      casts.push_back(master_gradients_(role_, at));
    }
    role_.Alloc(flat_gradient_);
    role_.MemoryKernel("flatten gradients", role_.compute, Work::compute, std::move(casts), {flat_gradient_},
                       flat_->elements(), SizeOf(flat_->master_type()) * 2 * flat_->elements());
    EachTrained(role_, [&](const ParameterAt& at) { role_.Free(master_gradients_(role_, at)); });
    gradients_.Free(role_);
    flat_->Update(flat_gradient_);
    role_.Free(flat_gradient_);
    EachTrained(role_, [&](const ParameterAt& at) {
      const std::int64_t elements = ParameterOf(role_, at).elements;
      role_.MemoryKernel("master to weight", role_.compute, Work::optimizer, {flat_->master()}, {Weight(at)}, elements,
                         (SizeOf(flat_->master_type()) + SizeOf(axes_.precision.params)) * elements);
    });
  }

  void UpdateWeights() {
    optimizer_.Step(role_, {[&](std::int64_t position) {
                      return gradients_.UpdatesOf(role_, position, [&](const ParameterAt& at) { return Weight(at); });
                    }});
    gradients_.Free(role_);
  }

  Role& role_;
  const Axes& axes_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  AutogradGradients gradients_;
  ParameterTable weights_, slots_, casts_, master_gradients_;
  std::optional<FlatParameters> flat_;
  BufferRef flat_gradient_;
  OptimizerState optimizer_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeDeepSpeedPlain(Role& role) { return std::make_unique<DeepSpeedPlain>(role); }

}  // namespace tidemark
