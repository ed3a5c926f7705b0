// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "profiler/capture/gpu_records.h"

namespace tidemark {

/// Somebody who takes memory of the GPU: one of the names below.
struct GpuOwner {
  std::string name;
  Bytes at_peak;  ///< when all together have most
  Bytes peak;     ///< its own most
  Bytes at_end;   ///< when the records end
  friend bool operator==(const GpuOwner&, const GpuOwner&) = default;
};

inline constexpr std::string_view kTensorOwner = "tensors", kNccl = "NCCL", kCublas = "cuBLAS", kCudnn = "cuDNN",
                                  kCupti = "profiler", kOtherOwner = "other";

struct GpuMemoryUse {
  Bytes peak;                       ///< of all together
  Nanos at;                         ///< when it is first reached
  std::vector<GpuOwner> owners;     ///< largest at the peak first; equal ones by name
  std::int64_t recorded_twice = 0;  ///< allocations at mapped addresses, which are counted as physical memory already

  /// None where it has nothing.
  Bytes AtEnd(std::string_view owner) const;
};

/// Whether an address lies in what our own allocator took.
using IsOurs = std::function<bool(std::uint64_t address)>;

/// Follows all memory of the device that came and went. Physical memory counts from its making to its release, whoever
/// maps it where; it is ours if it was ever mapped where `ours` says. What comes from a pool counts as the pool's size,
/// and is of whoever used the pool first. Pinned and managed memory is the host's. Who else asked is told by the path
/// of the library (allocation sources); it is "other" without.
GpuMemoryUse FollowGpuMemory(const GpuRecords& records, const IsOurs& ours);

}  // namespace tidemark
