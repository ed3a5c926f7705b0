// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/memory_peak.h"

#include <algorithm>

namespace tidemark {

MemoryPeak FindMemoryPeak(const Trace& trace, std::size_t families) {
  MemoryPeak peak;
  Bytes total;
  for (std::size_t i = 0; i < trace.memory.size(); ++i) {
    const Bytes bytes = trace.tensors[trace.memory[i].tensor.index].bytes;
    total = trace.memory[i].alloc ? total + bytes : total - bytes;
    if (total > peak.allocated) {
      peak.allocated = total;
      peak.event = i;
    }
  }
  std::vector<std::int64_t> counts(trace.tensors.size());
  for (std::size_t i = 0; i <= peak.event; ++i) {
    counts[trace.memory[i].tensor.index] += trace.memory[i].alloc ? 1 : -1;
  }
  for (std::uint32_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) {
      const Bytes bytes = trace.tensors[i].bytes * counts[i];
      peak.by_category[trace.tensors[i].category] += bytes;
      peak.largest.push_back({TensorNameId{i}, counts[i], bytes});
    }
  }
  std::stable_sort(peak.largest.begin(), peak.largest.end(),
                   [](const MemoryPeak::Family& a, const MemoryPeak::Family& b) { return a.bytes > b.bytes; });
  peak.largest.resize(std::min(families, peak.largest.size()));
  return peak;
}

}  // namespace tidemark
