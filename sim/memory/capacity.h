// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/quantity.h"
#include "models/job/allocator_options.h"
#include "sim/memory/device_memory.h"

namespace tidemark {

/// One line of a log of allocations, in issue order. `id` names a tensor from its allocation to its free, is dense, and
/// may be used again after that; `bytes` and `stream` (of birth) matter on allocation only.
struct Request {
  bool alloc = true;
  std::uint32_t id = 0;
  Bytes bytes;
  std::uint32_t stream = 0;
  bool after_sync = false;  ///< all streams were waited for just before
};

/// What became of a log on a device of limited memory.
struct Outcome {
  enum class Kind : std::uint8_t { fine, flushed, out_of_memory };

  Kind kind = Kind::fine;
  std::int64_t cache_flushes = 0;       ///< the vain one before running out included
  std::size_t failed_request = 0;       ///< index into the log of the request that was refused, if one was
  Bytes failed_bytes;                   ///< what that request asked for
  Bytes allocated_peak, reserved_peak;  ///< up to there

  bool succeeded() const { return kind != Kind::out_of_memory; }
};

/// Plays the log into a fresh allocator over a device's memory, or over pretended memory of so many bytes, up to the
/// first request that is refused.
Outcome Replay(std::span<const Request> log, const AllocatorOptions& options, std::unique_ptr<DeviceMemory> device);
Outcome Replay(std::span<const Request> log, const AllocatorOptions& options, Bytes capacity);

/// The smallest capacity at which Replay succeeds, to the byte. Success need not be monotone in the capacity, so a
/// larger one may fail; without a memory fraction, the reserved peak on an unlimited device and all above it never do.
Bytes MinimumCapacity(std::span<const Request> log, const AllocatorOptions& options);

}  // namespace tidemark
