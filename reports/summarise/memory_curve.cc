// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/memory_curve.h"

#include <algorithm>

namespace tidemark {
namespace {

Nanos MemoryTime(const Trace& trace) {
  Nanos end;
  for (const MemoryEvent& event : trace.memory) {
    end = std::max({end, event.issue, event.ready});
  }
  return end;
}

}  // namespace

std::vector<Bytes> MemoryCurve(const Trace& trace, std::size_t stretches) {
  const Nanos end = MemoryTime(trace);
  if (trace.memory.empty() || end <= Nanos(0) || stretches == 0) {
    return {};
  }
  std::vector<Bytes> curve(stretches);
  const auto stretch_of = [&](Nanos time) {
    const double share = static_cast<double>(time.count()) / static_cast<double>(end.count());
    return std::min(stretches - 1, static_cast<std::size_t>(share * static_cast<double>(stretches)));
  };
  Bytes total;
  Nanos last;
  std::size_t at = 0;
  for (const MemoryEvent& event : trace.memory) {
    last = std::max({last, event.issue, event.ready});
    for (const std::size_t now = stretch_of(last); at < now;) {
      curve[++at] = total;  // what is alive when a stretch begins
    }
    const Bytes bytes = trace.tensors[event.tensor.index].bytes;
    total = event.alloc ? total + bytes : total - bytes;
    curve[at] = std::max(curve[at], total);
  }
  while (++at < stretches) {
    curve[at] = total;
  }
  return curve;
}

}  // namespace tidemark
