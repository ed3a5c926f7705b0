// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "base/quantity.h"
#include "profiler/device/tensor_memory.h"

namespace tidemark {

/// What the memory below an allocator holds that is no tensor's.
struct BesideTensors {
  Bytes rounding;  ///< behind tensors, as far as the allocator counts it with them, and tails of less than a page
  Bytes cached;    ///< between them
};

/// Visits stretches [begin, end) of addresses.
using VisitStretch = std::function<void(std::uint64_t begin, std::uint64_t end)>;

/// Walks over the stretches that the device below the allocator has, which `for_each` visits. `bytes_in` says how much
/// memory a stretch takes.
BesideTensors CountBesideTensors(const TensorMemory& memory, const std::function<void(const VisitStretch&)>& for_each,
                                 const std::function<Bytes(std::uint64_t begin, std::uint64_t end)>& bytes_in);

}  // namespace tidemark
