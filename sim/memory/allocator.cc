// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/allocator.h"

namespace tidemark {

std::uint64_t Allocator::FreeInUse(std::uint32_t handle) {
  in_use_.emplace(++tickets_, handle);
  return tickets_;
}

void Allocator::UseEnds(std::uint64_t ticket) {
  if (const auto found = in_use_.find(ticket); found != in_use_.end()) {
    Free(found->second);
    in_use_.erase(found);
  }
}

void Allocator::Synchronize() {
  for (const auto& [ticket, handle] : in_use_) {
    Free(handle);
  }
  in_use_.clear();
}

std::unique_ptr<Allocator> MakeAllocator(const AllocatorOptions& options, std::unique_ptr<DeviceMemory> device) {
  switch (options.kind) {
    case AllocatorKind::exact:
      return MakeExactAllocator(std::move(device));
    case AllocatorKind::torch_caching:
      return MakeTorchCachingAllocator(options, std::move(device));
    case AllocatorKind::arena:
      return MakeArenaAllocator(options, std::move(device));
    case AllocatorKind::cuda_async:
      return MakeCudaAsyncAllocator(options, std::move(device));
  }
  Fail("a kind of allocator that is not in the enumeration", __FILE__, __LINE__);
}

std::unique_ptr<Allocator> MakeAllocator(const AllocatorOptions& options, Bytes capacity) {
  return MakeAllocator(options, MakePretendMemory(capacity));
}

}  // namespace tidemark
