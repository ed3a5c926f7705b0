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
/// draws the same dropout masks (GradCache's RandContext: torch.get_rng_state and that of each input's device). The
/// size of the first is that of CPUGeneratorImplState (pytorch, aten/src/ATen/CPUGeneratorImpl.cpp): seed 8, left and
/// seeded 4 each, next 8, 624 words of Mersenne Twister 8 each, three doubles, a flag, padded: 5,048; then a float and
/// a flag, padded: 5,056 bytes. The second is a seed and an offset of Philox, 8 bytes each
/// (aten/src/ATen/cuda/CUDAGeneratorImpl.cpp, get_state): 16 bytes.
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

  /// A phase of one chunk, which is named by its side and its number there.
  Begin BeginChunk(Phase phase, const Microbatch& microbatch, std::int64_t side) const;

 private:
  BufferRef Chunk(const Microbatch& microbatch, std::int64_t side, const std::string& name) const;
  BufferRef Whole(std::int64_t side, const std::string& name) const;
  void EachChunk(std::int64_t count, const Node& node);

  Role& role_;
  BlockPasses& passes_;
  BlockWriter& blocks_;
  std::int64_t chunks_ = 0;  ///< of a side
  LoopId chunk_loop_;
  BufferId random_, surrogate_;
};

}  // namespace tidemark
