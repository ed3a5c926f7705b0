// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "base/quantity.h"
#include "base/result.h"
#include "profiler/device/gpu_driver.h"
#include "sim/memory/device_memory.h"

namespace tidemark {

/// A pool of cudaMallocAsync on a GPU, for tensors alone. The driver decides what it takes and gives, and when: as a
/// device's memory it only counts, by the pool's attributes, what that has come to.
class GpuPool final : public DeviceMemory {
 public:
  /// Of so much memory at most, as far as the driver keeps to that; where it is all that the GPU has, the driver's own
  /// limit holds. Beyond `release_threshold` the driver gives back what nobody has when the host waits for the GPU.
  /// `driver` outlives it.
  static Result<std::unique_ptr<GpuPool>> Make(GpuDriver& driver, Bytes capacity, Bytes release_threshold);
  GpuPool(const GpuPool&) = delete;
  /// Everything in it has been freed, and that has come to pass.
  ~GpuPool() override;

  /// Memory for work that a CUDA stream is given from now on; empty where there is no more.
  std::optional<std::uint64_t> Allocate(Bytes bytes, void* stream);
  /// Behind what the stream has been given.
  void Free(std::uint64_t address, void* stream) { driver_.FreeInOrder(address, stream); }
  /// Gives back all that nobody has.
  void Trim();
  /// Counts what the driver has taken and given meanwhile.
  void Follow();

  GpuDriver::PoolUse use() const { return driver_.UseOf(pool_); }
  /// Whether it has ever handed out an address: what was freed has still been its own.
  bool Has(std::uint64_t address) const;

  Bytes RangeOf(Bytes page) const override { return page; }
  std::unique_ptr<DeviceMemory> On(Bytes capacity) const override;
  Bytes mapped_peak() const override { return use().reserved_peak; }

 private:
  GpuPool(GpuDriver& driver, std::uint64_t pool, Bytes capacity)
      : DeviceMemory(capacity), driver_(driver), pool_(pool) {}

  std::optional<std::uint64_t> DoTake(Bytes) override;
  void DoGive(std::uint64_t, Bytes) override;
  std::optional<std::uint64_t> DoReserve(Bytes) override;
  void DoRelease(std::uint64_t, Bytes) override;
  bool DoMap(std::uint64_t, Bytes) override;
  void DoUnmap(std::uint64_t, Bytes) override;

  GpuDriver& driver_;
  std::uint64_t pool_;
  std::map<std::uint64_t, std::uint64_t> handed_out_;  ///< begin -> end, of stretches without gaps
};

}  // namespace tidemark
