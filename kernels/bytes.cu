// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/bytes_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels {
namespace {

std::size_t SizeOf(Bytes bytes) { return static_cast<std::size_t>(bytes.count()); }

}  // namespace

void MoveBytes(const Queue& queue, const void* from, void* to, Bytes bytes) {
  if (bytes == Bytes(0)) {
    return;
  }
#ifdef __CUDACC__
  if (queue.kind == Queue::Kind::gpu) {
    cuda::Check(cudaMemcpyAsync(to, from, SizeOf(bytes), cudaMemcpyDeviceToDevice, cuda::Stream(queue)), __FILE__,
                __LINE__);
    return;
  }
#endif
  TIDEMARK_CHECK(queue.kind != Queue::Kind::gpu);
  std::memmove(to, from, SizeOf(bytes));
}

void SetBytes(const Queue& queue, int byte, void* at, Bytes bytes) {
  if (bytes == Bytes(0)) {
    return;
  }
#ifdef __CUDACC__
  if (queue.kind == Queue::Kind::gpu) {
    cuda::Check(cudaMemsetAsync(at, byte, SizeOf(bytes), cuda::Stream(queue)), __FILE__, __LINE__);
    return;
  }
#endif
  TIDEMARK_CHECK(queue.kind != Queue::Kind::gpu);
  std::memset(at, byte, SizeOf(bytes));
}

}  // namespace tidemark::kernels
