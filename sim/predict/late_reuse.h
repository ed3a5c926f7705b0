// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/quantity.h"
#include "models/job/allocator_options.h"
#include "sim/memory/allocator.h"
#include "sim/memory/uses_under_way.h"

namespace tidemark {

/// What an allocator has reserved, with room to spare, where memory that other streams use when it is freed
/// (Free::recorded) is handed out again only when they are done. Where nothing waits for streams, as on a processor or
/// where whoever gets the memory next waits for its uses himself, less is reserved: the two are the ends between which
/// a real run lies, whose host is slower than the one here or takes part of its time elsewhere.
class LateReuse {
 public:
  explicit LateReuse(const AllocatorOptions& options);

  /// `id` names a tensor from its allocation to its free, and is dense; `issue`: when the host said so.
  void Allocate(std::uint32_t id, Bytes bytes, std::uint32_t stream, Nanos issue);
  /// `done`: when other streams have done what they were given before; at `issue` or earlier: none uses it.
  void Free(std::uint32_t id, Nanos issue, Nanos done);
  /// All streams were waited for.
  void Synchronize() { uses_.Synchronize(*allocator_); }

  Bytes reserved_peak() const { return allocator_->reserved_peak(); }

 private:
  std::unique_ptr<Allocator> allocator_;
  std::vector<std::uint32_t> handles_;  // by id
  UsesUnderWay uses_;
};

}  // namespace tidemark
