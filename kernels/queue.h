// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tidemark::kernels::cuda {

/// Where an operator of `<operator>_cuda.h` puts its work; it comes back before the work is done, but work of one queue
/// is done in order. The host kind does it at once on the calling thread, with operands in the host's memory: what the
/// GPU computes, in the same order, where there is no GPU.
struct Queue {
  enum class Kind : std::uint8_t { stream, host };

  Kind kind = Kind::stream;
  void* stream = nullptr;  ///< a cudaStream_t; null: CUDA's default stream
  /// kScratchBytes where the queue's work can write, of this queue alone: partial sums of long tensors. Without them
  /// such a sum is one thread block's work.
  void* scratch = nullptr;

  static constexpr std::int64_t kPartialSums = 1024, kScratchBytes = 8 * kPartialSums;
};

}  // namespace tidemark::kernels::cuda
