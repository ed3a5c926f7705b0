// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/contiguous.h"

#include <optional>
#include <utility>

#include "sim/lower/fold_alike.h"
#include "sim/strategies/megatron/forward_gathers.h"
#include "sim/strategies/megatron/fp32_exchange.h"
#include "sim/strategies/megatron/fused_gradients.h"
#include "sim/strategies/megatron/gradient_buffer.h"
#include "sim/strategies/megatron/gradient_ways.h"
#include "sim/strategies/megatron/owned_parts.h"
#include "sim/strategies/megatron/whole_parts.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

class Contiguous : public DataParallel {
 public:
  explicit Contiguous(Role& role)
      : role_(role),
        axes_(role.job.axes),
        ranks_(role.job.layout.GradientRanks()),
        ways_(role),
        buffer_(role),
        fused_(role),
        exchange_(role, ways_.usual().stream, ways_.usual().group),
        exchanges_(axes_.sync.fp32_accumulation && ranks_ > 1),
        eager_(axes_.sync.overlap && role.step != StepKind::first) {
    DeclareParameters();
    DeclareStates();
    if (axes_.sync.overlap_gather && ranks_ > 1 && role.step != StepKind::first) {
      gathers_.emplace(role, ways_, buffer_, weights_);
    }
  }

  void GatherAhead() override {
    if (gathers_) {
      gathers_->LeaveTogether();
    }
  }

  void BeginMicrobatch(const Microbatch& microbatch) override {
    gathering_ = gathers_ && microbatch.first();
    if (microbatch.first()) {
      role_.EachBlock([&](std::int64_t position) { Zero(position); });
      if (std::exchange(has_copies_, false)) {
        EachOwnedBucket([&](const GradientBucket& bucket) { owned_->FreeCopy(bucket); });
      }
    }
  }

  void BeforeAction(const Microbatch&, std::int64_t position, std::size_t action) override {
    if (gathering_) {
      gathers_->BeforeAction(position, action);
    }
  }

  void EndForward(const Microbatch&) override { gathering_ = false; }

  void BeforeBackward(const Microbatch& microbatch, std::int64_t) override {
    launching_ = eager_ && microbatch.place.synchronises;
  }

  void EndBackward(const Microbatch& microbatch) override {
    launching_ = false;
    if (microbatch.place.synchronises) {
      FinishReduction();
    }
  }

  void MeasureNorm() override {
    if (owned_) {
      CopyOwnedGradients();
      owned_->MeasureNorm(OwnedUpdates());
    } else {
      whole_->MeasureNorm(WholeUpdates());
    }
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    if (owned_) {
      CopyOwnedGradients();
      owned_->Step(OwnedUpdates());
      EachOwnedBucket([&](const GradientBucket& bucket) { owned_->CopyToWeights(bucket, WeightsOf(bucket)); });
    } else {
      whole_->Step(WholeUpdates());
      role_.EachBlock([&](std::int64_t position) { whole_->CopyToWeights(position, TrainedOf(position, weights_)); });
    }
    role_.builder.Emit(End{Phase::optimizer});
    if (axes_.shard.optimizer && ranks_ > 1 && !axes_.sync.overlap_gather) {
      GatherUpdated();
    }
  }

  /// The next window begins by zeroing the buffer.
  void DiscardGradients(const Microbatch&) override {}

  BufferRef Weight(const ParameterAt& at) override { return weights_(role_, at); }

  BufferRef BeginGradient(const Microbatch&, const ParameterAt& at) override {
    if (!fused_.Contains(at)) {
      role_.Alloc(gradients_(role_, at));
      return gradients_(role_, at);
    }
    if (fused_.IsTiedHere(at)) {
      role_.ZeroKernel("zero dummy gradient", role_.compute, Work::compute, fused_.Dummy(at));
    }
    return main_gradients_(role_, at);
  }

  bool AddsInKernel(const Microbatch&, const ParameterAt& at) const override { return fused_.Contains(at); }

  /// The hook behind the parameter's gradient. That of a tied embedding adds the dummy too, which is why it was zeroed.
  void EndGradient(const Microbatch&, const ParameterAt& at) override {
    if (!fused_.Contains(at)) {
      role_.AddKernel("accumulate gradient", role_.compute, gradients_(role_, at), main_gradients_(role_, at));
      role_.Free(gradients_(role_, at));
    } else if (fused_.IsTiedHere(at)) {
      role_.AddKernel("accumulate dummy gradient", role_.compute, fused_.Dummy(at), main_gradients_(role_, at));
    } else {
      fused_.Dummy(at);
    }
    if (launching_) {
      for (const GradientBucket& bucket : buffer_.CompletedBy(at)) {
        DrainBefore(bucket);
        Scale(bucket);
        Reduce(bucket);
      }
    }
  }

  std::vector<std::int64_t> KeyBetweenMicrobatches() const override {
    return {fused_.DummiesMade(), has_copies_ ? 1 : 0};
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    std::vector<std::int64_t> key = launching_ ? buffer_.Key(position) : std::vector<std::int64_t>();
    if (gathering_) {
      key = gathers_->Key(position);
    }
    key.push_back(fused_.DummiesMade());
    const std::vector<std::int64_t> exchanges = exchange_.Key(position, LaunchesNothing(position));
    key.insert(key.end(), exchanges.begin(), exchanges.end());
    return key;
  }
  std::int64_t BlocksAlike(std::int64_t position) const override {
    if (gathering_) {
      return gathers_->BlocksAlike(position);
    }
    return launching_ ? buffer_.BlocksAlike(position) : INT64_MAX;
  }
  /// Called with the last block written, so what follows begins at the one below it.
  void Shift(std::int64_t blocks) override {
    if (launching_ && !LaunchesNothing(role_.current() - 1)) {
      exchange_.Shift(role_.current() - 1, blocks);
    }
  }

  /// _allreduce_layernorm_grads (core/distributed/finalize_model_grads.py)
  ReplicatedGradients SumsReplicated() const override { return ReplicatedGradients::before_step_flat; }

  BufferRef FinalGradient(const ParameterAt& at) override { return main_gradients_(role_, at); }

 private:
  void DeclareParameters() {
    const Precision& precision = axes_.precision;
    const auto trained = ParameterTable::Of::trained;
    const std::optional<Holding> whole = axes_.shard.optimizer ? std::optional(buffer_.HoldsWhole()) : std::nullopt;
    const auto all = [](const Parameter& parameter) { return parameter.elements; };
    const auto of_trained = [](const Parameter& parameter) { return parameter.trainable ? parameter.elements : 0; };
    weights_.Declare(role_, "weight of", Category::parameter, precision.params, all, true, true, whole);
    gradients_.Declare(role_, "gradient of", Category::gradient, precision.gradients, trained, false);
    main_gradients_.Declare(role_, "main gradient of", Category::accumulator, precision.accumulate, of_trained, true,
                            true, whole);
    const auto pad = [&](const char* name, Category category, DType dtype) {
      if (buffer_.padding() > 0) {
        role_.builder.AddBuffer(
            {name, category, dtype, buffer_.padding(), {1, 1}, role_.compute, Place::device, true, true});
      }
    };
    if (axes_.shard.optimizer) {
      pad("padding of the parameter buffer", Category::parameter, precision.params);
    }
    pad("padding of the gradient buffer", Category::accumulator, precision.accumulate);
  }

  void DeclareStates() {
    if (axes_.shard.optimizer) {
      owned_.emplace(role_, buffer_);
      has_copies_ = owned_->CopiesAtStart();
      return;
    }
    whole_.emplace(role_);
  }

  void Zero(std::int64_t position) {
    std::vector<BufferRef> all;
    std::int64_t elements = 0;
    ForEachTrained(role_, position, [&](const ParameterAt& at) {
      all.push_back(main_gradients_(role_, at));
      elements += ParameterOf(role_, at).elements;
    });
    if (!all.empty()) {
      role_.MemoryKernel("zero gradient buffer", role_.compute, Work::optimizer, {}, all, elements,
                         SizeOf(axes_.precision.accumulate) * elements);
    }
  }

  void Scale(const GradientBucket& bucket) {
    for (const ParameterAt& member : bucket.members) {
      ScaleGradient(member);
    }
  }

  /// Of experts, too, by all ranks whose tokens they have seen.
  void ScaleGradient(const ParameterAt& at) {
    const GradientBucket& bucket = buffer_.buckets()[buffer_.BucketOf(at)];
    const std::int64_t averaged = axes_.sync.average_in_collective ? ways_.Of(bucket).ranks : 1;
    if (averaged < ranks_ && axes_.loss_scale != LossScale::summed_tokens) {
      role_.builder.Emit(tidemark::Scale{role_.builder.Named("scale gradient"), Rational(averaged, ranks_),
                                         role_.compute, main_gradients_(role_, at)});
    }
  }

  void Reduce(const GradientBucket& bucket) {
    if (exchanges_) {
      exchange_.Launch(bucket, MainGradientsOf(bucket));
    } else {
      ways_.Reduce(bucket, MainGradientsOf(bucket));
    }
  }

  bool LaunchesNothing(std::int64_t position) const { return buffer_.Describe(position).empty(); }

  /// An exchange is drained before the one of the next bucket in the buffer begins.
  void DrainBefore(const GradientBucket& bucket) {
    const std::vector<GradientBucket>& all = buffer_.buckets();
    for (std::size_t i = 1; i < all.size(); ++i) {
      if (all[i].members.front() == bucket.members.front()) {
        Drain(all[i - 1]);
      }
    }
  }

  void Drain(const GradientBucket& bucket) {
    if (exchange_.IsUnderWay(bucket)) {
      exchange_.Drain(bucket, MainGradientsOf(bucket));
    }
  }

  /// Waits for the buckets that are under way; else starts them one after the other, each waited for.
  void FinishReduction() {
    const auto reduce = [&](const GradientBucket& bucket) {
      Reduce(bucket);
      if (exchanges_) {
        Drain(bucket);
      } else {
        ways_.Await(bucket, "bucket reduced");
      }
    };
    if (eager_ && exchanges_) {
      for (const GradientBucket& bucket : buffer_.buckets()) {
        Drain(bucket);
      }
    } else if (eager_) {
      ways_.AwaitAll("buckets reduced");
    } else if (axes_.sync.overlap) {
      EachBucket([&](const GradientBucket& bucket) {
        Scale(bucket);
        reduce(bucket);
      });
    } else {
      EachTrained(role_, [&](const ParameterAt& at) { ScaleGradient(at); });
      EachBucket(reduce);
    }
  }

  std::vector<BufferRef> MainGradientsOf(const GradientBucket& bucket) const {
    return MembersIn(main_gradients_, role_, bucket);
  }
  std::vector<BufferRef> WeightsOf(const GradientBucket& bucket) const { return MembersIn(weights_, role_, bucket); }

  /// Writes `body(bucket)` for every bucket, as loops where they repeat.
  template <class Body>
  void EachBucket(Body body) {
    EachBucket([&](std::int64_t position) { return buffer_.Describe(position); }, body);
  }

  /// The same where the body looks at what this rank owns of the bucket.
  template <class Body>
  void EachOwnedBucket(Body body) {
    EachBucket([&](std::int64_t position) { return OwnedKey(position); },
               [&](const GradientBucket& bucket) { bucket.owned > 0 ? body(bucket) : void(); });
  }

  /// Of gradients whose copies the optimizer reads.
  void CopyOwnedGradients() {
    if (owned_->CopiesGradients() && !std::exchange(has_copies_, true)) {
      EachOwnedBucket([&](const GradientBucket& bucket) { owned_->CopyGradients(bucket, MainGradientsOf(bucket)); });
    }
  }

  std::vector<std::int64_t> OwnedKey(std::int64_t position) const {
    std::vector<std::int64_t> key = buffer_.Describe(position);
    const std::vector<std::int64_t> owned = owned_->Key(position);
    key.insert(key.end(), owned.begin(), owned.end());
    return key;
  }

  Updates WholeUpdates() {
    const auto at = [&](std::int64_t position) {
      return whole_->UpdatesOf(position, TrainedOf(position, main_gradients_), TrainedOf(position, weights_));
    };
    return {.at = at, .host_reads_norm = true};
  }

  Updates OwnedUpdates() {
    const auto at = [&](std::int64_t position) {
      std::vector<TensorUpdate> updates;
      for (const GradientBucket& bucket : buffer_.CompletedIn(position)) {
        if (bucket.owned > 0) {
          updates.push_back(owned_->UpdateOf(bucket, MainGradientsOf(bucket), WeightsOf(bucket)));
        }
      }
      return updates;
    };
    return {at, [&](std::int64_t position) { return OwnedKey(position); }, BlockOrder::last_to_first, true};
  }

  template <class Body>
  void EachBucket(const BlockKey& key, Body body) {
    EachBlockAlike(
        role_, key,
        [&](std::int64_t position) {
          for (const GradientBucket& bucket : buffer_.CompletedIn(position)) {
            body(bucket);
          }
        },
        BlockOrder::last_to_first);
  }

  std::vector<BufferRef> TrainedOf(std::int64_t position, const ParameterTable& table) const {
    std::vector<BufferRef> buffers;
    ForEachTrained(role_, position, [&](const ParameterAt& at) { buffers.push_back(table(role_, at)); });
    return buffers;
  }

  void GatherUpdated() {
    role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
    ways_.BeginGathers();
    EachBucket([&](const GradientBucket& bucket) { ways_.Gather(bucket, WeightsOf(bucket)); });
    ways_.AwaitAll("parameters gathered");
    role_.builder.Emit(End{Phase::gather});
  }

  Role& role_;
  const Axes& axes_;
  std::int64_t ranks_;
  GradientWays ways_;
  GradientBuffer buffer_;
  FusedGradients fused_;
  Fp32Exchange exchange_;
  bool exchanges_;          ///< instead of reducing in the collective
  bool eager_;              ///< a bucket is reduced as soon as it is complete
  bool launching_ = false;  ///< in the backward pass under way
  bool gathering_ = false;  ///< in the forward pass under way
  ParameterTable weights_, gradients_, main_gradients_;
  bool has_copies_ = false;          ///< of the last window's gradients in fp32
  std::optional<OwnedParts> owned_;  ///< the distributed optimizer's
  std::optional<WholeParts> whole_;  ///< any other's
  std::optional<ForwardGathers> gathers_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeContiguous(Role& role) { return std::make_unique<Contiguous>(role); }

}  // namespace tidemark
