// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sim/lower/block_passes.h"
#include "sim/lower/block_writer.h"
#include "sim/lower/cache_passes.h"
#include "sim/lower/stage_links.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

/// One chunk of a rank at work: writes its passes, with messages to other stages and the strategy's hooks around them.
class ChunkWriter {
 public:
  /// `windows`: those of the whole step.
  ChunkWriter(const Job& job, const Stage& stage, StepKind step, const Strategy& strategy,
              const std::vector<WindowRun>& windows, RoleProgram& program);

  /// The pass of `slot` over the microbatch named by `index`, the `order`-th that this chunk sees. At its end it calls
  /// `send_held`, which sends what earlier passes have held, and sends its own result, unless it is held as well.
  void Write(const Slot& slot, const Index& index, std::int64_t order, const std::function<void()>& send_held);
  void GatherAhead() { data_parallel_->GatherAhead(); }
  /// Sends the result of an earlier forward or backward pass.
  void Send(Pass pass, const Index& index);

  /// Whether a window of this chunk is complete and waits for the optimizer.
  bool is_complete() const { return complete_; }
  ReplicatedGradientSum::Chunk OfReplicated() { return {role_, *data_parallel_}; }
  /// When those of all chunks are: adds up what several ranks hold of one gradient; then the optimizer steps.
  void ExchangeTied() { links_.ExchangeTiedGradient(*data_parallel_); }
  void ExchangeMirrored();
  /// Where gradients are sums over tokens (LossScale::summed_tokens).
  void DivideByTokens();
  void MeasureNorm();
  void Step();
  /// Throws away what an incomplete window has left behind the last step.
  void DiscardGradients();

  /// What is under way between two microbatches.
  std::vector<std::int64_t> Key() const;

  /// The stretch of microbatches that stand in their windows alike, and how many of them lie before its end.
  const WindowPlace& PlaceAt(std::int64_t order) const { return windows_[RunAt(order)].place; }
  std::int64_t EndOfRunAt(std::int64_t order) const { return ends_[RunAt(order)]; }
  std::size_t runs() const { return windows_.size(); }
  const Stage& stage() const { return role_.stage; }

 private:
  std::size_t RunAt(std::int64_t order) const;
  /// What a pass does last.
  using Sending = std::function<void()>;
  void Forward(const Microbatch& microbatch, const Sending& send);
  void Backward(const Microbatch& microbatch, BlockWriter::Backwards kind, const Sending& send);
  /// What comes behind the pass that completes a microbatch's gradients.
  void Finish(const Microbatch& microbatch, const Begin& begin);

  Role role_;
  std::vector<WindowRun> windows_;
  std::vector<std::int64_t> ends_;  ///< of the windows' runs, in microbatches
  std::unique_ptr<DataParallel> data_parallel_;
  BlockWriter blocks_;
  StageLinks links_;
  BlockPasses passes_;
  CachePasses cache_;
  bool complete_ = false, stepped_ = false;
};

}  // namespace tidemark
