// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/late_reuse.h"

#include <cstddef>
#include <limits>
#include <optional>

#include "base/check.h"

namespace tidemark {

LateReuse::LateReuse(const AllocatorOptions& options)
    : allocator_(MakeAllocator(options, Bytes(std::numeric_limits<std::int64_t>::max()))) {}

void LateReuse::Allocate(std::uint32_t id, Bytes bytes, std::uint32_t stream, Nanos issue) {
  uses_.EndUntil(issue, *allocator_);
  const std::optional<Allocation> given = allocator_->Allocate(bytes, stream);
  TIDEMARK_CHECK(given.has_value());
  if (handles_.size() <= id) {
    handles_.resize(id + std::size_t{1});
  }
  handles_[id] = given->handle;
}

void LateReuse::Free(std::uint32_t id, Nanos issue, Nanos done) {
  if (done > issue) {
    uses_.Add(done, allocator_->FreeInUse(handles_[id]));
  } else {
    allocator_->Free(handles_[id]);
  }
}

}  // namespace tidemark
