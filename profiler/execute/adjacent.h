// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/tensor.h"

namespace tidemark {

/// Whether `second` begins where `first` ends. Never of tensors without data.
template <class AnyTensor>
bool AreAdjacent(const AnyTensor& first, const AnyTensor& second) {
  const std::ptrdiff_t bytes = (SizeOf(first.type.dtype) * first.type.elements).count();
  return first.data != nullptr && first.type.dtype == second.type.dtype &&
         static_cast<const std::byte*>(first.data) + bytes == second.data;
}

/// Parts of work that take numbers one by one, where each that continues the one before it has become one with it: of
/// a flat buffer a kernel does at once what it would do parameter by parameter, as the systems that keep flat buffers
/// do. A part has `bool Continues(const Part& previous) const` and `void Extend(const Part& next)`; one of other memory
/// never continues it, wherever an allocator has put that. Parts come in the order of their addresses.
template <class Part>
std::vector<Part> Joined(const std::vector<Part>& parts) {
  std::vector<Part> joined;
  for (const Part& part : parts) {
    if (!joined.empty() && part.Continues(joined.back())) {
      joined.back().Extend(part);
    } else {
      joined.push_back(part);
    }
  }
  return joined;
}

}  // namespace tidemark
