// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/colossalai/chunk_search.h"

namespace tidemark {

/// One buffer per chunk that has elements of this kind.
class ChunkTable {
 public:
  /// Buffers are like `chunk` but for their number behind its name, their elements and what they hold.
  void Declare(Role& role, const Buffer& chunk, const std::vector<std::int64_t>& elements,
               const std::vector<Holding>& holds);
  bool Has(std::int64_t chunk) const { return refs_[static_cast<std::size_t>(chunk)].buffer.valid(); }
  BufferRef operator()(std::int64_t chunk) const { return refs_[static_cast<std::size_t>(chunk)]; }

 private:
  std::vector<BufferRef> refs_;  ///< by chunk
};

/// Gemini's chunks of parameters, gradients, masters and moments, and what is done to one of them. Every function
/// writes the nodes of one method of colossalai/zero/gemini/chunk (chunk.py, manager.py), in its order of allocations.
class GeminiChunks {
 public:
  GeminiChunks(Role& role, const ChunkLayout& layout);

  /// access_chunk: a whole chunk in place of this rank's shard.
  void Gather(std::int64_t chunk);
  /// release_chunk: the shard is copied out of the whole chunk. The copy runs on `stream`.
  void GiveUp(std::int64_t chunk, StreamId stream);

  /// init_grad_chunk in the first microbatch of a window, rearrange_accumulated_grad_chunk in later ones.
  void OpenGradient(std::int64_t chunk, bool first_microbatch);
  /// copy_tensor_to_chunk_slice in the first microbatch, add_tensor_to_chunk_slice in later ones.
  void PutGradient(std::int64_t chunk, const BufferRef& gradient, bool first_microbatch, bool first_of_chunk);
  /// reduce_chunk, release_chunk of the parameters, and the division by N.
  void Reduce(std::int64_t chunk);
  /// The host waits for enable_async_reduce's stream.
  void WaitForReductions();
  /// One update per chunk, then updated masters are copied to parameters.
  void Update();

  BufferRef Whole(std::int64_t chunk) const { return whole_(chunk); }
  /// As the optimizer reads it.
  BufferRef FinalGradient(std::int64_t chunk) const {
    return layout_.keep_gathered ? gradient_(chunk) : gradient_shard_(chunk);
  }

 private:
  void Declare();
  std::vector<Holding> HoldsWhole() const;
  std::vector<Holding> HoldsOwn(bool masters) const;
  std::int64_t OwnElements(std::size_t chunk) const;
  void UpdateOne(std::int64_t chunk);
  void Communicate(const char* name, CollectiveKind kind, Reduction reduction, StreamId from, const BufferRef& input,
                   const BufferRef& output);
  void FreeAfter(const BufferRef& ref, StreamId stream);

  Role& role_;
  const Axes& axes_;
  const ChunkLayout& layout_;
  std::int64_t ranks_;
  StreamId stream_, reduce_stream_;
  GroupId group_;
  ChunkTable whole_, shard_, gradient_, gradient_shard_, backup_, masters_, moments_;
};

}  // namespace tidemark
