// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp2/fully_sharded.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/network/loss_in_chunks.h"
#include "sim/lower/replicated_gradients.h"
#include "sim/strategies/fsdp2/gradient_scatter.h"
#include "sim/strategies/fsdp2/unit_gather.h"
#include "sim/strategies/fsdp2/units.h"
#include "sim/strategies/host_optimizer.h"
#include "sim/strategies/optimizer.h"

namespace tidemark {
namespace {

/// With how many actions of the loss a head's backward pass begins before that of its unit; 0 where there is nothing
/// else in it.
std::size_t LossActions(const Job& job, const Block& block, bool calls_head) {
  if (TakesChunks(job.axes.loss)) {
    TIDEMARK_CHECK(block.chunks_end == 0 || block.chunks_end < block.backward.size());  // a norm's comes behind it
    return calls_head ? block.chunks_end : 0;
  }
  const auto other = std::find_if(block.backward.begin(), block.backward.end(), [](const Action& action) {
    const auto* kernel = std::get_if<Calculate>(&action);
    return kernel == nullptr || !std::holds_alternative<CrossEntropy>(kernel->op);
  });
  return other == block.backward.end() ? 0 : static_cast<std::size_t>(other - block.backward.begin());
}

class FullySharded : public DataParallel {
 public:
  FullySharded(Role& role, AllReduceWhen all_reduce_when)
      : role_(role),
        axes_(role.job.axes),
        units_(role),
        gather_(role, units_),
        scatter_(role, units_, gather_.StoredType(), all_reduce_when) {
    optimizer_.Declare(
        role, [&](std::int64_t position) { return units_.TrainedShardsOf(role_, position); },
        units_.tied ? OptimizerState::Tensors::flat : OptimizerState::Tensors::parameters,
        [&](std::int64_t position) { return units_.HoldsTrained(position); }, StatePlace(role.job));
    for (const StageRun& run : role.stage.runs) {
      loss_actions_.push_back(LossActions(role.job, run.block(), gather_.LossCallsHead()));
    }
    if (axes_.optimizer_step.in_backward) {
      scatter_.SetHook([&](const ParameterGroup& group, StreamId behind) {
        optimizer_.UpdateInBackward(role_, group.unit, UpdatesOf(group.unit).front(), behind);
        for (const BufferRef& sharded : scatter_.Sharded(group)) {
          role_.Free(sharded);
        }
      });
    }
    FindSummedWide();
    gradients_.Declare(role, "gradient of", Category::gradient, axes_.precision.gradients, ParameterTable::Of::trained,
                       false);
    // Without a dtype of its own to accumulate in, later gradients are added to the first one.
    accumulators_.Declare(role, "accumulated gradient of",
                          AccumulatesInPlace() ? Category::gradient : Category::accumulator, axes_.precision.reduce,
                          ParameterTable::Of::trained, false);
  }

  void BeginMicrobatch(const Microbatch&) override { gather_.BeginForward(); }
  void BeforeForward(const Microbatch& microbatch, std::int64_t position) override {
    gather_.BeforeForward(microbatch, position);
  }
  void AfterForward(const Microbatch&, std::int64_t position) override { gather_.AfterForward(position); }
  void EndForward(const Microbatch&) override { gather_.EndForward(); }
  /// A unit's pre-backward hook hangs on what the unit returns (_fsdp_state.py, _register_pre_backward_hook). Of the
  /// last one that is the logits, so that the loss's own backward kernels come first.
  void BeforeBackward(const Microbatch&, std::int64_t position) override {
    if (LossActionsAt(position) == 0) {
      gather_.BeforeBackward(position);
    } else if (gather_.LossCallsHead()) {
      gather_.Unshard(position);
    }
  }
  void BeforeAction(const Microbatch&, std::int64_t position, std::size_t action) override {
    const std::size_t of_loss = LossActionsAt(position);
    if (of_loss > 0 && action == role_.stage.BlockAt(position).forward.size() + of_loss) {
      if (gather_.LossCallsHead()) {
        gather_.Reshard(units_.Of(position));
      }
      gather_.BeforeBackward(position);
    }
  }

  void AfterAction(const Microbatch&, std::int64_t /*position*/, std::size_t /*action*/) override {
    if (std::exchange(sum_is_complete_, false)) {
      scatter_.PackAhead(units_.GroupOf(role_, *summed_wide_), accumulators_(role_, *summed_wide_));
    }
  }

  /// Deferred gradients are added up, the unit is resharded, and its gradients are scattered or kept for later. A loss
  /// that calls the head scatters its gradient by itself, in every microbatch, and that of the norm in front behind it,
  /// which waits for the former; here both are one scatter, into whose input the head's gradient goes at once, which is
  /// waited for, and which is deferred with all others.
  void AfterBackward(const Microbatch& microbatch, std::int64_t position) override {
    if (!units_.Opens(position)) {
      return;
    }
    for (const ParameterGroup& group : units_.GroupsInReverse(position)) {
      EndGroup(microbatch, group);
    }
    if (gather_.LossCallsHead() && position == role_.stage.blocks - 1 && Reduces(microbatch)) {
      scatter_.FreeScattered();
    }
  }

  void EndBackward(const Microbatch& microbatch) override {
    if (ReducesBehind() && microbatch.place.synchronises) {
      for (std::int64_t position = role_.stage.blocks; position-- > 0;) {
        for (const ParameterGroup& group : units_.GroupsInReverse(position)) {
          SumReplicated(group, true);
          gather_.Reshard(group);
          Scatter(microbatch, group, true);
        }
      }
    }
    scatter_.EndBackward(microbatch);
  }

  void MeasureNorm() override { optimizer_.MeasureNorm(role_, AllUpdates()); }

  /// All updates first, then zero_grad: in the first step moments appear beside a full set of gradients.
  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    if (!axes_.optimizer_step.in_backward) {
      optimizer_.Step(role_, AllUpdates());
      scatter_.ZeroSharded();
    }
    role_.builder.Emit(End{Phase::optimizer});
  }

  void DiscardGradients(const Microbatch& last) override {
    scatter_.Discard(last);
    if (!last.place.synchronises) {
      EachTrained(role_, [&](const ParameterAt& at) { role_.Free(accumulators_(role_, at)); });
    }
    if (!axes_.shard.reshard_after_backward) {
      gather_.ReshardAll();
    }
  }

  std::vector<std::int64_t> KeyBetweenMicrobatches() const override { return {scatter_.KeepsSharded() ? 1 : 0}; }

  BufferRef Weight(const ParameterAt& at) override { return gather_.Unsharded(at); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    if (at == summed_wide_) {
      if (!microbatch.place.pending) {
        role_.Alloc(accumulators_(role_, at));
      }
      return accumulators_(role_, at);
    }
    const bool starts = !microbatch.place.pending && (!microbatch.place.synchronises || ReducesBehind());
    const BufferRef ref = AccumulatesInPlace() && starts ? accumulators_(role_, at) : gradients_(role_, at);
    role_.Alloc(ref);
    return ref;
  }

  /// What is summed from parts of a microbatch goes on being summed in the next one.
  bool AddsInKernel(const Microbatch& microbatch, const ParameterAt& at) const override {
    return at == summed_wide_ && microbatch.place.pending;
  }

  /// Gradients that autograd itself adds up are added as they arrive.
  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    sum_is_complete_ = at == summed_wide_ && PacksHeadAhead(microbatch, at.position);
    if (AccumulatesInPlace() && microbatch.place.pending) {
      AddToAccumulator(at);
    }
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    std::vector<std::int64_t> key;
    gather_.AppendKey(position, key);
    scatter_.AppendKey(position, key);
    return key;
  }
  std::int64_t BlocksAlike(std::int64_t position) const override { return gather_.BlocksAlike(position); }
  void Shift(std::int64_t blocks) override {
    gather_.Shift(blocks);
    scatter_.Shift(blocks);
  }

  ReplicatedGradients SumsReplicated() const override { return ReplicatedGradients::by_strategy; }

  BufferRef FinalGradient(const ParameterAt& at) override { return scatter_.ShardedOf(at); }

 private:
  std::size_t LossActionsAt(std::int64_t position) const { return loss_actions_[role_.stage.RunOf(position)]; }

  void FindSummedWide() {
    const std::int64_t last = role_.stage.blocks - 1;
    const std::vector<Parameter>& parameters = role_.stage.BlockAt(last).parameters;
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].summed_wide) {
        summed_wide_ = parameters[i].tied ? kTiedTo : ParameterAt{last, i};
      }
    }
  }

  /// Without a reduce dtype of its own the first microbatch's gradient itself is what later ones are added to.
  bool AccumulatesInPlace() const { return axes_.precision.reduce == axes_.precision.gradients; }

  /// In a pipeline all backward passes run without synchronisation, and an action behind the last of them runs each
  /// unit's post-backward, the last unit's first (torch/distributed/pipelining, schedules.py: REDUCE_GRAD;
  /// PyTorch 2.15's _fsdp_state.py, finalize_backward).
  bool ReducesBehind() const { return role_.stage.count > 1; }
  bool Reduces(const Microbatch& microbatch) const { return microbatch.place.synchronises && !ReducesBehind(); }

  /// A group's post-backward hook; that of a unit's last group runs first.
  void EndGroup(const Microbatch& microbatch, const ParameterGroup& group) {
    const bool accumulated = microbatch.place.pending;
    if (accumulated && !AccumulatesInPlace()) {
      ForEachFresh(group, [&](const ParameterAt& at) { AddToAccumulator(at); });
    }
    if (Reduces(microbatch)) {
      SumReplicated(group, accumulated);
    }
    if (!ReducesBehind() && (axes_.shard.reshard_after_backward || microbatch.place.last)) {
      gather_.Reshard(group);
    }
    if (Reduces(microbatch)) {
      Scatter(microbatch, group, accumulated);
    } else if (!accumulated && !AccumulatesInPlace()) {
      ForEachFresh(group, [&](const ParameterAt& at) { StartAccumulator(at); });
    }
  }

  bool PacksHeadAhead(const Microbatch& microbatch, std::int64_t position) const {
    return summed_wide_ && gather_.LossCallsHead() && position == role_.stage.blocks - 1 && units_.Opens(position) &&
           Reduces(microbatch);
  }

  BufferRef Gathered(const ParameterAt& at, bool accumulated) const {
    return accumulated || at == summed_wide_ ? accumulators_(role_, at) : gradients_(role_, at);
  }

  /// With sequence parallelism a norm's gradient is a DTensor of partial sums. It stays one while microbatches are
  /// accumulated; where the unit's gradients are collected to be reduced, each is redistributed to what the parameter
  /// is: replicated (_fsdp_param.py, _get_grad_inner_tensor). The copy that the functional all-reduce makes is left
  /// out.
  void SumReplicated(const ParameterGroup& group, bool accumulated) {
    units_.ForEachTrainedOf(role_, group, [&](const ParameterAt& at) {
      if (IsSummedOverParts(role_, at)) {
        SumOverTensorParallelRanks(role_, {Gathered(at, accumulated)});
      }
    });
  }

  /// Takes a group's gradients, or what was accumulated of them.
  void Scatter(const Microbatch& microbatch, const ParameterGroup& group, bool accumulated) {
    std::vector<BufferRef> gradients;
    const bool ahead = PacksHeadAhead(microbatch, group.unit);
    units_.ForEachTrainedOf(role_, group, [&](const ParameterAt& at) {
      if (!ahead || at != summed_wide_) {
        gradients.push_back(Gathered(at, accumulated));
      }
    });
    scatter_.Scatter(microbatch, group, gradients);
  }

  Updates AllUpdates() {
    return {[&](std::int64_t position) { return UpdatesOf(position); }};
  }

  std::vector<TensorUpdate> UpdatesOf(std::int64_t position) {
    TensorUpdate update{0, 0, {}, {}, SizeOf(gather_.StoredType()) * 3};
    for (const ParameterGroup& group : units_.GroupsOf(position)) {
      if (const std::int64_t elements = units_.SizeOf(group).trainable_padded / units_.ShardsOf(group); elements > 0) {
        update.elements += elements;
        for (const BufferRef& sharded : scatter_.Sharded(group)) {
          update.gradients.push_back(sharded);
        }
      }
      units_.ForEachTrainedOf(role_, group,
                              [&](const ParameterAt& at) { update.updated.push_back(gather_.Shard(at)); });
    }
    return update.elements > 0 ? std::vector{update} : std::vector<TensorUpdate>();
  }

  /// Those that a backward pass makes anew, and does not add to what is accumulated.
  template <class Visit>
  void ForEachFresh(const ParameterGroup& group, Visit visit) {
    units_.ForEachTrainedOf(role_, group, [&](const ParameterAt& at) {
      if (at != summed_wide_) {
        visit(at);
      }
    });
  }

  void AddToAccumulator(const ParameterAt& at) {
    role_.AddKernel("accumulate gradient", role_.compute, gradients_(role_, at), accumulators_(role_, at));
    role_.Free(gradients_(role_, at));
  }

  /// One parameter after the other: the two copies of only one gradient exist at a time.
  void StartAccumulator(const ParameterAt& at) {
    role_.Alloc(accumulators_(role_, at));
    role_.CopyKernel("cast gradient", role_.compute, gradients_(role_, at), accumulators_(role_, at));
    role_.Free(gradients_(role_, at));
  }

  Role& role_;
  const Axes& axes_;
  const Units units_;
  UnitGather gather_;
  GradientScatter scatter_;
  std::vector<std::size_t> loss_actions_;  ///< per run
  ParameterTable gradients_, accumulators_;
  std::optional<ParameterAt> summed_wide_;  ///< the parameter whose gradient is a sum of parts in the reduce dtype
  bool sum_is_complete_ = false;            ///< by the action that is written
  OptimizerState optimizer_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeFullySharded(Role& role) {
  return std::make_unique<FullySharded>(role, AllReduceWhen::every_scatter);
}

std::unique_ptr<DataParallel> MakeHybridSharded(Role& role) {
  return std::make_unique<FullySharded>(role, AllReduceWhen::last_microbatch);
}

}  // namespace tidemark
