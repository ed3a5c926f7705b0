// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/lower/block_passes.h"
#include "sim/lower/block_writer.h"
#include "sim/lower/role.h"

namespace tidemark {

/// What GradCache does beside plain forward and backward passes (github.com/luyug/GradCache, grad_cache.py): the
/// representations of all chunks without their activations, one loss over them, and the gradient of each chunk's
/// representations, from which the chunk's own backward pass begins.
///
/// The state of the random numbers before a chunk's first forward pass is kept on the host, so that the second one
/// draws the same dropout masks: torch.get_rng_state is 5,056 bytes, that of a CUDA generator 16.
/// Representations, cached gradients and states live until the step's last backward pass is done, as they do in
/// `cache_step`; a chunk's ids until their last use. Concatenating costs a kernel a chunk (torch.cat: one for up to
/// 128 of them).
class CachePasses {
 public:
  CachePasses(Role& role, BlockPasses& passes, BlockWriter& blocks);

  void Load(const Microbatch& microbatch, std::int64_t side);
  void Represent(const Microbatch& microbatch, std::int64_t side);
  /// Behind the last chunk of a side.
  void Join(std::int64_t side);
  void Loss(const Microbatch& microbatch);
  /// A chunk's second forward pass, up to its surrogate: the product of representation and cached gradient.
  void Forward(const Microbatch& microbatch, std::int64_t side);
  void Backward(const Microbatch& microbatch, std::int64_t side);
  /// Before the optimizer: nothing that was cached is needed any more.
  void Drop();

  /// The chunk's number within its side.
  Index NumberOf(const Microbatch& microbatch, std::int64_t side) const;

 private:
  BufferRef Chunk(const Microbatch& microbatch, std::int64_t side, const std::string& name) const;
  BufferRef Whole(std::int64_t side, const std::string& name) const;
  void EachChunk(std::int64_t count, const Node& node);

  Role& role_;
  BlockPasses& passes_;
  BlockWriter& blocks_;
  std::int64_t chunks_ = 0;  ///< of a side; 0: the job does not cache
  LoopId chunk_loop_;
  BufferId random_, surrogate_;
};

}  // namespace tidemark
