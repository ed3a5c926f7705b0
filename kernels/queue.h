// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tidemark::kernels::cuda {

class Blas;

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
  Blas* blas = nullptr;  ///< multiplies matrices (blas.h); null: a kernel of ours, which is many times slower
  /// What `blas` may use, of this queue alone, as aligned as device memory is. With less it has fewer ways to multiply.
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;

  static constexpr std::int64_t kPartialSums = 1024, kScratchBytes = 8 * kPartialSums;
  /// 32 MiB: what NVIDIA advises for Hopper (https://docs.nvidia.com/cuda/cublas/#cublassetworkspace) and what PyTorch
  /// gives cuBLASLt there (https://github.com/pytorch/pytorch/pull/120925).
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
};

}  // namespace tidemark::kernels::cuda
