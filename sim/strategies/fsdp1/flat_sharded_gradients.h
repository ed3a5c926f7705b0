// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategies/fsdp1/flat_sharded_buffers.h"

namespace tidemark {

/// What becomes of a unit's gradients: one flat gradient, summed over the microbatches in no_sync, reduced in one that
/// synchronises, and the shard that the optimizer reads.
class FlatGradients {
 public:
  explicit FlatGradients(FlatLayout& layout);

  /// All gradients of the unit exist: makes them one, and adds it to what is pending.
  void Flatten(const Microbatch& microbatch, std::int64_t unit);
  /// Reduces the flat gradient into the sharded one, on streams of its own.
  void Reduce(const Microbatch& microbatch, std::int64_t unit);
  /// The compute stream waits for what was reduced in this microbatch.
  void Join();

  /// As the optimizer reads it.
  BufferRef Final(std::int64_t unit) const;
  /// zero_grad, and what zero_grad would be to an incomplete window whose last microbatch is `last`.
  void FreeFinal(std::int64_t unit);
  void Discard(const Microbatch& last, std::int64_t unit);

 private:
  BufferRef At(const RunBuffers& buffers, std::int64_t unit) const { return layout_.role.Ref(buffers, unit); }
  /// Without shards, what was reduced once is where later gradients are added.
  bool AddsToFinal(const Microbatch& microbatch) const { return layout_.whole() && microbatch.place.reduced; }
  bool FlatIsFinal() const { return layout_.whole() && !layout_.casts_gradients() && !layout_.casts_shards(); }
  void ReduceWhole(std::int64_t unit);
  BufferRef PrepareScatter(std::int64_t unit);
  void Scatter(std::int64_t unit, const BufferRef& input, const BufferRef& output);
  void ReduceOverReplicas(const BufferRef& shard);
  void TakeShard(bool first, std::int64_t unit, const BufferRef& scattered);
  void Divide(const char* name, Rational factor, StreamId stream, const BufferRef& ref);

  FlatLayout& layout_;
  Rational before_, after_;  ///< what gradients are multiplied by on either side of the sum over ranks
  StreamId last_stream_;     ///< of the reduction: the replicas', where there are any
};

}  // namespace tidemark
