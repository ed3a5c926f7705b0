// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "profiler/capture/budget.h"
#include "profiler/capture/outside_view.h"
#include "profiler/device/host_device.h"
#include "profiler/device/tensor_memory.h"

namespace tidemark {

/// What this process takes of the machine's memory: its resident set.
///
/// A resident set only rises until something is given back to the system. So it is enough to look at it where it rises
/// most, after each tensor has come, and before anything large goes: pages of the device, a large block of the heap.
/// That costs a microsecond, and where there is a new high of more than 1/64 a walk over the device's pages. At the end
/// the kernel's own high-water mark says whether something was missed, and a walk over all pages whether its count
/// holds.
class ProcessView final : public OutsideView {
 public:
  /// `memory` lies over the memory of `host` (HostDevice::memory). The heap counts since CountHeap.
  ProcessView(TensorMemory& memory, HostMemory& host);
  ~ProcessView() override;
  ProcessView(const ProcessView&) = delete;
  ProcessView& operator=(const ProcessView&) = delete;

  Budget Close(std::int64_t rank) override;

 private:
  void Look();
  void CountTheHeap();

  TensorMemory& memory_;
  HostMemory& host_;
  bool forgot_peak_ = false;
  bool looking_ = false;
  Budget highest_;
};

/// Of a rank whose tensors lie on `host`, which outlives the view.
MakeOutsideView WatchProcess(HostDevice& host);

}  // namespace tidemark
