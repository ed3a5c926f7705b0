// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "traces/trace.h"

namespace tidemark {

/// Each memory event: tensor, bytes, birth or death, and what is reserved then.
inline std::vector<std::tuple<std::string, std::int64_t, bool, std::int64_t>> MemoryEventsOf(const Trace& trace) {
  std::vector<std::tuple<std::string, std::int64_t, bool, std::int64_t>> all;
  for (const MemoryEvent& event : trace.memory) {
    const TraceTensor& tensor = trace.tensors[event.tensor.index];
    all.emplace_back(tensor.name, tensor.bytes.count(), event.alloc, event.reserved_bytes.count());
  }
  return all;
}

}  // namespace tidemark
