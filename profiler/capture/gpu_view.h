// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "profiler/capture/beside_tensors.h"
#include "profiler/capture/budget.h"
#include "profiler/capture/gpu_capture.h"
#include "profiler/capture/outside_view.h"
#include "profiler/device/gpu_device.h"
#include "profiler/device/tensor_memory.h"

namespace tidemark {

/// How a rank's GPU is watched.
struct GpuWatch {
  GpuCapture* capture = nullptr;  ///< begun before the GPU's context was made; nothing: there is none
  std::string without_capture{};  ///< then why, in a sentence
  std::int64_t ranks_on_gpu = 1;  ///< of this run
  /// What messages between ranks that are on their way take of the GPU now (World::staging); nothing: none do.
  std::function<Bytes()> staging{};
};

/// What this process takes of its GPU's memory, by the driver's count less what was used before it came.
///
/// The driver is asked where the device below the allocator has more than ever, when the tensor that this was for has
/// come, and at the end; asking takes it some microseconds, and taking more takes longer. At the same instants tensors,
/// rounding, cache and rooms are counted here, the cache of a pool by its own attributes; what libraries and CUPTI
/// itself have then, its records say when the budget is closed. What they took before the context was made is the
/// context's. Code of kernels is what the driver took while work was given (GpuBooks::code).
class GpuView final : public OutsideView {
 public:
  /// `memory` lies over the memory of `device` (GpuDevice::memory); both and the capture outlive this.
  GpuView(TensorMemory& memory, const GpuDevice& device, GpuWatch watch);
  ~GpuView() override;
  GpuView(const GpuView&) = delete;
  GpuView& operator=(const GpuView&) = delete;

  Budget Close(std::int64_t rank) override;

 private:
  void LookWhereItGrew();
  void Look();
  BesideTensors Beside() const;
  bool IsOurs(std::uint64_t address) const;
  Bytes CodeBytes(const GpuRecords& records) const;
  void CountRecords();
  std::vector<std::string> DoubtsOfWatching() const;

  TensorMemory& memory_;
  const GpuDevice& device_;
  GpuWatch watch_;
  Bytes most_taken_;  ///< of the device below the allocator, when it was looked at last
  Nanos looked_at_;   ///< when `highest_` was
  Budget highest_;
  Bytes staging_;  ///< when `highest_` was
  std::vector<std::string> doubts_of_records_;
};

/// Of a rank whose tensors lie on `device`, which outlives the view.
MakeOutsideView WatchGpu(const GpuDevice& device, const GpuWatch& watch);

}  // namespace tidemark
