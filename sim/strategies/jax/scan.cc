// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "sim/strategies/jax/inline_reduction.h"
#include "sim/strategies/jax/microbatched.h"
#include "sim/strategies/parameter_table.h"
#include "sim/strategies/xla/train_state.h"
#include "sim/strategies/xla/versions.h"

namespace tidemark {
namespace {

class Scan : public DataParallel {
 public:
  explicit Scan(Role& role)
      : role_(role),
        stacks_(role.job.axes.buffers.stack_gradients),
        reduces_each_(role.job.axes.sync.when == Sync::When::every),
        microbatches_(role.job.Microbatches()),
        stacked_loop_(role.builder.AddLoop("stacked")),
        state_(role),
        reduction_(role) {
    const Precision& precision = role.job.axes.precision;
    sums_.Declare(role, "summed gradient of", Category::accumulator, precision.accumulate, ParameterTable::Of::trained,
                  false);
    gradients_.Declare(role, stacks_ ? "stacked gradient of" : "gradient of", Category::gradient, precision.gradients,
                       stacks_ ? microbatches_ : 1);
  }

  void BeginMicrobatch(const Microbatch& microbatch) override {
    reduction_.BeginForward();
    if (!microbatch.first()) {
      return;
    }
    Launch(role_, "train_step");
    state_.BeginReturning();
    if (!stacks_) {
      EachTrained(role_, [&](const ParameterAt& at) {
        role_.Alloc(sums_(role_, at));
        role_.ZeroKernel("zero sum", role_.compute, Work::compute, sums_(role_, at));
      });
    }
  }
  void EndForward(const Microbatch&) override { reduction_.BeginBackward(); }

  void EndBackward(const Microbatch& microbatch) override {
    if (reduces_each_) {
      reduction_.Finish([&](const ParameterAt& at) { return gradients_(role_, at, microbatch.index); });
      if (!stacks_) {
        EachTrained(role_, [&](const ParameterAt& at) { AddUp(microbatch, at); });
      }
    } else if (microbatch.place.synchronises) {
      reduction_.All([&](const ParameterAt& at) { return sums_(role_, at); });
    }
    if (stacks_ && microbatch.place.last) {
      EachTrained(role_, [&](const ParameterAt& at) { SumStack(at); });
    }
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    role_.EachBlock([&](std::int64_t position) {
      std::vector<BufferRef> sums;
      ForEachTrained(role_, position, [&](const ParameterAt& at) {
        sums.push_back(sums_(role_, at));
        role_.MemoryKernel("divide by microbatches", role_.compute, Work::optimizer, {sums.back()}, {sums.back()}, 0,
                           Bytes(0), Rational(1, role_.job.accumulation_steps));
      });
      state_.Update(position, sums);
    });
    state_.EndReturning();
    FreeSums();
    role_.builder.Emit(End{Phase::optimizer});
  }

  void DiscardGradients(const Microbatch&) override { FreeSums(); }

  BufferRef Weight(const ParameterAt& at) override { return state_.Weight(at); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    const BufferRef ref = gradients_(role_, at, microbatch.index);
    role_.Alloc(ref);
    return ref;
  }
  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    if (reduces_each_) {
      reduction_.Arrive(at, [&](const ParameterAt& member) { return gradients_(role_, member, microbatch.index); });
    } else {
      AddUp(microbatch, at);
    }
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override { return reduction_.Key(position); }
  void Shift(std::int64_t blocks) override { reduction_.Shift(blocks); }
  BufferRef FinalGradient(const ParameterAt& at) override { return sums_(role_, at); }

 private:
  void AddUp(const Microbatch& microbatch, const ParameterAt& at) {
    const BufferRef gradient = gradients_(role_, at, microbatch.index);
    role_.AddKernel("accumulate gradient", role_.compute, gradient, sums_(role_, at));
    role_.Free(gradient);
  }

  /// One reduction over the stack: reads every gradient, writes the sum once.
  void SumStack(const ParameterAt& at) {
    const BufferRef sum = sums_(role_, at);
    const BufferRef first = gradients_(role_, at, {LoopId{}, 0, 0});
    role_.Alloc(sum);
    role_.CopyKernel("sum stacked gradients", role_.compute, first, sum);
    role_.Free(first);
    if (microbatches_ == 1) {
      return;
    }
    const std::size_t start = role_.builder.size();
    const BufferRef next = gradients_(role_, at, {stacked_loop_, 0, 0});
    const Buffer& buffer = role_.builder.buffer(next.buffer);
    role_.MemoryKernel("sum stacked gradients", role_.compute, Work::compute, {next, sum}, {sum}, buffer.elements,
                       buffer.bytes());
    role_.Free(next);
    role_.builder.Fold(start, {stacked_loop_, microbatches_ - 1, 1, 1, 0});
  }

  void FreeSums() {
    EachTrained(role_, [&](const ParameterAt& at) { role_.Free(sums_(role_, at)); });
  }

  Role& role_;
  bool stacks_, reduces_each_;
  std::int64_t microbatches_;
  LoopId stacked_loop_;
  TrainState state_;
  InlineReduction reduction_;
  ParameterTable sums_;
  VersionTable gradients_;
};

}  // namespace

std::unique_ptr<DataParallel> MakeScan(Role& role) { return std::make_unique<Scan>(role); }

}  // namespace tidemark
