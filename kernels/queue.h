// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/check.h"

namespace tidemark::kernels {

namespace cuda {
class Blas;
}
class Together;

/// Where an operator puts its work. It may come back before the work is done, but work of one queue is done in order.
struct Queue {
  enum class Kind : std::uint8_t {
    cpu,   ///< the CPU truth, at once, on the calling thread
    gpu,   ///< `<operator>_cuda.h` on a GPU
    host,  ///< what the GPU computes, in the same order, at once on the calling thread, with operands in its memory
  };

  Kind kind = Kind::gpu;
  void* stream = nullptr;  ///< a cudaStream_t; null: CUDA's default stream
  /// kScratchBytes where the queue's work can write, of this queue alone: partial sums of long tensors. Without them
  /// such a sum is one thread block's work.
  void* scratch = nullptr;
  cuda::Blas* blas = nullptr;  ///< multiplies matrices (blas.h); null: a kernel of ours, which is many times slower
  /// What `blas` and sums of long columns may use in turns, of this queue alone, as aligned as device memory is. With
  /// less there are fewer ways to multiply.
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;
  Together* together = nullptr;  ///< where kernels over elements wait for each other (together.h); null: none does
  void* number = nullptr;        ///< 8 bytes beside it, for a result that nobody reads; null: the host's memory will do

  static constexpr std::int64_t kPartialSums = 1024, kScratchBytes = 8 * kPartialSums;
  /// 32 MiB: what NVIDIA advises for Hopper (https://docs.nvidia.com/cuda/cublas/#cublassetworkspace) and what PyTorch
  /// gives cuBLASLt there (https://github.com/pytorch/pytorch/pull/120925).
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
};

/// An operator on whatever a queue is of.
template <class... Operands>
class OnQueue {
 public:
  constexpr OnQueue(void (*truth)(Operands...), void (*cuda)(Operands..., const Queue&))  // NOLINT: two of a kind
      : truth_(truth), cuda_(cuda) {}

  void operator()(const Queue& queue, Operands... operands) const {
    queue.kind == Queue::Kind::cpu ? truth_(operands...) : cuda_(operands..., queue);
  }

 private:
  void (*truth_)(Operands...);
  void (*cuda_)(Operands..., const Queue&);
};
template <class Cuda, class... Operands>
OnQueue(void (*)(Operands...), Cuda) -> OnQueue<Operands...>;

}  // namespace tidemark::kernels
