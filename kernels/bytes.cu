// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/bytes_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels {
namespace {

std::size_t SizeOf(Bytes bytes) { return static_cast<std::size_t>(bytes.count()); }

#ifdef __CUDACC__
using Unit = std::uint16_t;

struct MoveElement {
  using MayWait = void;
  const Unit* from;
  Unit* to;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    cuda::Write(cuda::Read(from, at), to, at);
  }
};

/// By a kernel, which others may join: of what lies in packs, or is so little that its launch is most of it.
bool MoveTogether(const Queue& queue, const void* from, void* to, Bytes bytes) {
  constexpr Bytes kLittle(1 << 16);
  const std::uintptr_t places = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  const std::uintptr_t step = bytes > kLittle ? sizeof(cuda::Pack<Unit>) : sizeof(Unit);
  if (queue.together == nullptr || bytes.count() % static_cast<std::int64_t>(sizeof(Unit)) != 0 || places % step != 0) {
    return false;
  }
  cuda::EachElement(queue, bytes.count() / static_cast<std::int64_t>(sizeof(Unit)),
                    MoveElement{static_cast<const Unit*>(from), static_cast<Unit*>(to)});
  return true;
}
#endif

}  // namespace

void MoveBytes(const Queue& queue, const void* from, void* to, Bytes bytes) {
  if (bytes == Bytes(0)) {
    return;
  }
#ifdef __CUDACC__
  if (queue.kind == Queue::Kind::gpu) {
    if (MoveTogether(queue, from, to, bytes)) {
      return;
    }
    LaunchWaiting(queue);
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
    LaunchWaiting(queue);
    cuda::Check(cudaMemsetAsync(at, byte, SizeOf(bytes), cuda::Stream(queue)), __FILE__, __LINE__);
    return;
  }
#endif
  TIDEMARK_CHECK(queue.kind != Queue::Kind::gpu);
  std::memset(at, byte, SizeOf(bytes));
}

}  // namespace tidemark::kernels
