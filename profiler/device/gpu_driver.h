// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/quantity.h"
#include "base/result.h"

namespace tidemark {

/// What one GPU is asked for memory, through CUDA's runtime or, where that has no call for it, its driver: the few
/// calls that a device's memory is made of. Anything but "no more memory" is a fault of the caller or of the machine,
/// and ends the process with the driver's own words: after it the context is lost.
class GpuDriver {
 public:
  /// Finds the driver's calls at run time, so that programs start where there is no driver. Makes the GPU's context.
  /// Fails with machine_cannot where there is no such GPU.
  static Result<std::unique_ptr<GpuDriver>> Open(int gpu);

  virtual ~GpuDriver() = default;

  /// cudaMalloc: empty where there is no more.
  virtual std::optional<std::uint64_t> Allocate(Bytes bytes) = 0;
  virtual void Free(std::uint64_t address) = 0;

  /// What sizes below must be multiples of.
  virtual Bytes granularity() const = 0;
  /// cuMemAddressReserve: addresses alone, from a multiple of `granularity` on; empty where there are no more.
  virtual std::optional<std::uint64_t> ReserveAddresses(Bytes bytes) = 0;
  virtual void FreeAddresses(std::uint64_t address, Bytes bytes) = 0;
  /// cuMemCreate: physical memory of this GPU, by a handle; empty where there is no more.
  virtual std::optional<std::uint64_t> MakeMemory(Bytes bytes) = 0;
  /// cuMemRelease: it goes when it is mapped nowhere.
  virtual void ReleaseMemory(std::uint64_t handle) = 0;
  /// cuMemMap: the memory lies there, and nobody may touch it yet.
  virtual void Map(std::uint64_t address, Bytes bytes, std::uint64_t handle) = 0;
  /// cuMemSetAccess: this GPU may read and write what is mapped there, without gaps.
  virtual void Allow(std::uint64_t address, Bytes bytes) = 0;
  virtual void Unmap(std::uint64_t address, Bytes bytes) = 0;

  /// A pool that cudaMallocAsync takes from (cuMemPoolCreate), which this process has for itself, with the driver's
  /// defaults for reuse between streams. Fails with machine_cannot where the driver has no such pools, or none with a
  /// largest size.
  struct PoolOptions {
    std::optional<Bytes> largest{};  ///< CUmemPoolProps::maxSize; nothing: the driver's limit
    Bytes release_threshold;         ///< CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
  };
  virtual Result<std::uint64_t> MakePool(const PoolOptions& options) = 0;
  /// cuMemPoolDestroy; everything in it has been freed.
  virtual void DropPool(std::uint64_t pool) = 0;
  /// cuMemAllocFromPoolAsync: for work that `stream` is given from now on; empty where there is no more.
  virtual std::optional<std::uint64_t> AllocateFromPool(std::uint64_t pool, Bytes bytes, void* stream) = 0;
  /// cuMemFreeAsync: behind what `stream` has been given.
  virtual void FreeInOrder(std::uint64_t address, void* stream) = 0;
  /// cuMemPoolTrimTo: gives back what nobody has, but `kept`.
  virtual void TrimPool(std::uint64_t pool, Bytes kept) = 0;
  /// cuMemPoolGetAttribute: now, and at most since it was made.
  struct PoolUse {
    Bytes reserved, reserved_peak;  ///< what the pool has of the GPU
    Bytes used, used_peak;          ///< of that, what was asked for
  };
  virtual PoolUse UseOf(std::uint64_t pool) const = 0;

  /// cudaMemGetInfo: of the whole GPU, whoever has it.
  struct Totals {
    Bytes free, total;
  };
  virtual Totals totals() const = 0;
};

}  // namespace tidemark
