// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/quantity.h"
#include "models/job/allocator_options.h"
#include "sim/memory/allocator.h"
#include "sim/memory/uses_under_way.h"

namespace tidemark {

/// What an allocator has reserved where memory that other streams use when it is freed (Free::recorded) comes back to
/// it only when they are done, by the times of a simulation: the later, the further the host is ahead of them. A
/// prediction's own allocator gets such memory back at once, as from streams that keep up. Real runs, whose hosts are
/// slower than one that does nothing but issue, mostly lie between the two (tests/gpu/recorded_test.py, of FSDP1).
///
/// A host is at most so far ahead of a stream as the driver takes launches for it: then a launch waits for one to end.
class LateReuse {
 public:
  /// About 1,000 were seen, for each stream: https://forums.developer.nvidia.com/t/68937
  static constexpr std::size_t kMostLaunches = 1024;

  /// `capacity`: of the device for this allocator. Where it is full, streams are waited for.
  LateReuse(const AllocatorOptions& options, Bytes capacity);

  /// `id` names a tensor from its allocation to its free, and is dense; `issue`: when the host would say so if it never
  /// waited for a launch. False where the device is full of what lives.
  bool Allocate(std::uint32_t id, Bytes bytes, std::uint32_t stream, Nanos issue);
  /// `done`: when other streams have done what they were given before; at `issue` or earlier: none uses it.
  void Free(std::uint32_t id, Nanos issue, Nanos done);
  /// Work for a stream, which ends then.
  void Launch(std::uint32_t stream, Nanos end);
  /// All streams were waited for.
  void Synchronize() { uses_.Synchronize(*allocator_); }

  Bytes reserved_peak() const { return allocator_->reserved_peak(); }

 private:
  struct Launches {
    std::vector<Nanos> ends;  // of the last ones, in a ring
    std::size_t next = 0;
  };

  std::unique_ptr<Allocator> allocator_;
  std::vector<std::uint32_t> handles_;  // by id
  UsesUnderWay uses_;
  std::vector<Launches> launches_;  // by stream
  Nanos launched_;                  // the last wait for a launch was over
};

}  // namespace tidemark
