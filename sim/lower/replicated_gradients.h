// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// Whether tensor-parallel ranks that all hold a parameter have a part of its gradient each: that of their own heads
/// (Parameter::shared_by_heads), or of their own rows, where the kernel that makes it in the backward pass of its block
/// reads a gradient of the residual stream that is scattered and not gathered again.
bool IsSummedOverParts(const Role& role, const ParameterAt& at);

/// Sums `gradients`, of one dtype, over the tensor-parallel group, in place, and waits for it.
void SumOverTensorParallelRanks(Role& role, const std::vector<BufferRef>& gradients);

/// What before_step and before_step_flat do when all of a window's gradients are reduced.
class ReplicatedGradientSum {
 public:
  struct Chunk {
    Role& role;
    DataParallel& data_parallel;
  };

  /// Of all chunks of a rank, always the same ones; nothing where it is done at another time or there is none.
  ///
  /// The flat tensor is a family per parameter and block, so that layers fold: its bytes are exact, the one kernel that
  /// concatenates is a copy for each gradient.
  void BeforeStep(const std::vector<Chunk>& chunks);

 private:
  BufferRef Flat(const Role& role, const BufferRef& gradient);

  std::map<std::uint32_t, BufferId> flat_;  ///< by the family of the gradient
};

}  // namespace tidemark
