// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/quantity.h"
#include "profiler/device/device.h"
#include "profiler/device/gpu_driver.h"
#include "profiler/device/gpu_management.h"
#include "profiler/device/gpu_memory.h"
#include "profiler/device/gpu_pool.h"

namespace tidemark {

/// What a device took of its GPU beside tensors, counted where it took it.
struct GpuBooks {
  /// Of the whole GPU before this process had a context there, by the driver's count; where there is no management
  /// library to tell, right after, so that the context is in it.
  Bytes used_before;
  std::optional<Bytes> context;  ///< what making it took; nothing: in used_before
  Nanos context_made;            ///< by the clock of std::chrono::steady_clock
  Bytes workspace;               ///< of its queues, for math libraries and kernels (kernels::Queue)
  Bytes rooms;                   ///< RoomFor, those that are there now

  /// What the driver took while work was given to the GPU, beside rooms and tensors: the code of kernels, which it
  /// loads kernel by kernel when they are first launched, their stacks, and what libraries allocate meanwhile.
  struct Growth {
    Nanos from, until;  ///< by the same clock
    Bytes bytes;
  };
  std::vector<Growth> code{};  ///< counted while Device::CountCode says so
};

/// A GPU, and what whoever watches its memory from outside may ask.
class GpuDevice : public Device {
 public:
  virtual const GpuDriver& driver() const = 0;
  virtual const GpuBooks& books() const = 0;
  /// What MemoryOf gave last, for as long as it is there.
  virtual const GpuMemory& memory() const = 0;
  /// The pool that tensors lie in instead, while there is one (OwnAllocator); nothing: they lie in `memory`.
  virtual const GpuPool* pool() const = 0;
  /// Nothing where this machine has none.
  virtual const std::optional<GpuManagement>& management() const = 0;
};

}  // namespace tidemark
