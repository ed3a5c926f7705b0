// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/quantity.h"
#include "profiler/capture/budget.h"
#include "profiler/capture/heap.h"
#include "profiler/device/host_memory.h"
#include "profiler/device/tensor_memory.h"

namespace tidemark {

/// Watches what this process really takes while a job runs in it, and takes the budget when its resident set is at its
/// highest.
///
/// A resident set only rises until something is given back to the system. So it is enough to look at it where it rises
/// most, after each tensor has come, and before anything large goes: pages of the device, a large block of the heap.
/// That costs a microsecond, and where there is a new high of more than 1/64 a walk over the device's pages. At the end
/// the kernel's own high-water mark says whether something was missed, and a walk over all pages whether its count
/// holds.
class OutsideView {
 public:
  /// `memory` lies over `host`; both outlive this. Heap counts since CountHeap.
  OutsideView(TensorMemory& memory, HostMemory& host);
  ~OutsideView();
  OutsideView(const OutsideView&) = delete;
  OutsideView& operator=(const OutsideView&) = delete;

  /// The budget of this rank at its peak, with all that puts it in doubt. To be asked when the last step is done, while
  /// everything is still there.
  Budget Close(std::int64_t rank);

 private:
  void Look();
  void CountDevice();
  void CountTheHeap();

  TensorMemory& memory_;
  HostMemory& host_;
  bool forgot_peak_ = false;
  bool looking_ = false;
  Budget highest_;
};

}  // namespace tidemark
