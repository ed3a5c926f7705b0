// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "base/quantity.h"

namespace tidemark {

/// By the clock of std::chrono::steady_clock, which is that of CUPTI's records as well (GpuCapture).
inline Nanos SteadyNow() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace tidemark
