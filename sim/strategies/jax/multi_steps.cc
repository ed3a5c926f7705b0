// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "sim/strategies/jax/inline_reduction.h"
#include "sim/strategies/jax/microbatched.h"
#include "sim/strategies/parameter_table.h"
#include "sim/strategies/xla/train_state.h"

namespace tidemark {
namespace {

class MultiSteps : public DataParallel {
 public:
  explicit MultiSteps(Role& role)
      : role_(role), mid_updates_(role.job.axes.buffers.mid_updates), state_(role), reduction_(role) {
    const Precision& precision = role.job.axes.precision;
    const auto trained = ParameterTable::Of::trained;
    sums_.Declare(role, "mean gradient of", Category::accumulator, precision.accumulate, trained, true);
    gradients_.Declare(role, "gradient of", Category::gradient, precision.gradients, trained, false);
    updates_.Declare(role, "update of", Category::optimizer, precision.params, trained, false);
  }

  void BeginMicrobatch(const Microbatch&) override {
    reduction_.BeginForward();
    Launch(role_, "train_step");
  }
  void EndForward(const Microbatch&) override { reduction_.BeginBackward(); }

  void EndBackward(const Microbatch& microbatch) override {
    reduction_.Finish([&](const ParameterAt& at) { return gradients_(role_, at); });
    if (mid_updates_) {
      role_.builder.Emit(HostSync{role_.compute});
      EachTrained(role_, [&](const ParameterAt& at) { role_.Alloc(updates_(role_, at)); });
    }
    EachTrained(role_, [&](const ParameterAt& at) {
      role_.AddKernel("accumulate mean", role_.compute, gradients_(role_, at), sums_(role_, at));
      role_.Free(gradients_(role_, at));
    });
    if (microbatch.place.last) {
      return;
    }
    if (mid_updates_) {
      EachTrained(role_, [&](const ParameterAt& at) {
        role_.ZeroKernel("zero update", role_.compute, Work::optimizer, updates_(role_, at));
      });
      ApplyUpdates();
    } else {
      role_.EachBlock([&](std::int64_t position) { state_.MaskedUpdate(position, SumsOf(position)); });
    }
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    role_.EachBlock([&](std::int64_t position) {
      std::vector<BufferRef> updates;
      if (mid_updates_) {
        ForEachTrained(role_, position, [&](const ParameterAt& at) { updates.push_back(updates_(role_, at)); });
      }
      state_.Update(position, SumsOf(position), updates);
    });
    ZeroSums();
    if (mid_updates_) {
      ApplyUpdates();
    }
    role_.builder.Emit(End{Phase::optimizer});
  }

  void DiscardGradients(const Microbatch&) override { ZeroSums(); }

  BufferRef Weight(const ParameterAt& at) override { return state_.Weight(at); }

  BufferRef BeginGradient(const Microbatch&, const ParameterAt& at) override {
    role_.Alloc(gradients_(role_, at));
    return gradients_(role_, at);
  }
  void EndGradient(const Microbatch&, const ParameterAt& at) override {
    reduction_.Arrive(at, [&](const ParameterAt& member) { return gradients_(role_, member); });
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override { return reduction_.Key(position); }
  void Shift(std::int64_t blocks) override { reduction_.Shift(blocks); }
  BufferRef FinalGradient(const ParameterAt& at) override { return sums_(role_, at); }

 private:
  std::vector<BufferRef> SumsOf(std::int64_t position) const {
    std::vector<BufferRef> sums;
    ForEachTrained(role_, position, [&](const ParameterAt& at) { sums.push_back(sums_(role_, at)); });
    return sums;
  }

  void ZeroSums() {
    EachTrained(role_, [&](const ParameterAt& at) {
      role_.ZeroKernel("zero mean", role_.compute, Work::optimizer, sums_(role_, at));
    });
  }

  /// optax.apply_updates.
  void ApplyUpdates() {
    EachTrained(role_, [&](const ParameterAt& at) {
      role_.AddKernel("apply update", role_.compute, updates_(role_, at), state_.Weight(at));
      role_.Free(updates_(role_, at));
    });
  }

  Role& role_;
  bool mid_updates_;
  TrainState state_;
  InlineReduction reduction_;
  ParameterTable sums_, gradients_, updates_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeMultiSteps(Role& role) { return std::make_unique<MultiSteps>(role); }

}  // namespace tidemark
