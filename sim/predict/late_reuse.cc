// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/late_reuse.h"

#include <algorithm>
#include <optional>

namespace tidemark {

LateReuse::LateReuse(const AllocatorOptions& options, Bytes capacity) : allocator_(MakeAllocator(options, capacity)) {}

bool LateReuse::Allocate(std::uint32_t id, Bytes bytes, std::uint32_t stream, Nanos issue) {
  uses_.EndUntil(std::max(issue, launched_), *allocator_);
  const std::optional<Allocation> given = allocator_->Allocate(bytes, stream);
  if (!given) {
    return false;
  }
  if (handles_.size() <= id) {
    handles_.resize(id + std::size_t{1});
  }
  handles_[id] = given->handle;
  return true;
}

void LateReuse::Launch(std::uint32_t stream, Nanos end) {
  if (launches_.size() <= stream) {
    launches_.resize(stream + std::size_t{1});
  }
  Launches& launches = launches_[stream];
  if (launches.ends.size() < kMostLaunches) {
    launches.ends.push_back(end);
    return;
  }
  Nanos& oldest = launches.ends[launches.next];
  launched_ = std::max(launched_, oldest);
  oldest = end;
  launches.next = (launches.next + 1) % kMostLaunches;
}

void LateReuse::Free(std::uint32_t id, Nanos issue, Nanos done) {
  if (done > std::max(issue, launched_)) {
    uses_.Add(done, allocator_->FreeInUse(handles_[id]));
  } else {
    allocator_->Free(handles_[id]);
  }
}

}  // namespace tidemark
