// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/allocator.h"

#include <algorithm>
#include <limits>

namespace tidemark {

DeviceMemory::DeviceMemory(Bytes capacity) : capacity_(capacity) { TIDEMARK_CHECK(capacity >= Bytes(0)); }

bool DeviceMemory::Take(Bytes bytes) {
  TIDEMARK_CHECK(bytes >= Bytes(0));
  const Bytes room = capacity_ - taken_;
  if (bytes > room) {
    const Bytes unreachable = Bytes(std::numeric_limits<std::int64_t>::max());
    const Bytes enough = bytes > unreachable - taken_ ? unreachable : taken_ + bytes;
    enough_for_next_ = std::min(enough_for_next_.value_or(enough), enough);
    return false;
  }
  taken_ += bytes;
  highest_ = std::max(highest_, taken_);
  return true;
}

void DeviceMemory::Give(Bytes bytes) {
  TIDEMARK_CHECK(bytes >= Bytes(0) && bytes <= taken_);
  taken_ -= bytes;
}

DeviceMemory DeviceMemory::On(Bytes capacity) const {
  DeviceMemory copy = *this;
  copy.capacity_ = capacity;
  copy.enough_for_next_.reset();
  return copy;
}

std::unique_ptr<Allocator> MakeAllocator(const AllocatorOptions& options, Bytes capacity) {
  switch (options.kind) {
    case AllocatorKind::exact:
      return MakeExactAllocator(capacity);
    case AllocatorKind::torch_caching:
      return MakeTorchCachingAllocator(capacity, options.expandable_segments);
    case AllocatorKind::arena:
    case AllocatorKind::cuda_async:
      break;
  }
  Fail("a kind of allocator that is not in the enumeration", __FILE__, __LINE__);
}

}  // namespace tidemark
