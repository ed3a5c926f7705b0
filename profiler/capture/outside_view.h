// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "profiler/capture/budget.h"
#include "profiler/device/tensor_memory.h"

namespace tidemark {

/// Watches from outside what a rank really takes while a job runs in it, from its making on, and takes the budget when
/// that is at its highest.
class OutsideView {
 public:
  virtual ~OutsideView() = default;

  /// The budget of this rank at its peak, with all that puts it in doubt. To be asked when the last step is done, while
  /// everything is still there.
  virtual Budget Close(std::int64_t rank) = 0;
};

/// Begins to watch whoever takes `memory`, which outlives the view. Whoever opens a device knows how.
using MakeOutsideView = std::function<std::unique_ptr<OutsideView>(TensorMemory& memory)>;

}  // namespace tidemark
