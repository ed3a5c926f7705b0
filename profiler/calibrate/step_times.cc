// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "profiler/calibrate/calibrate.h"

namespace tidemark {

Nanos TimeAroundKernels(const Trace& trace) {
  const StepMark& last = trace.steps.back();
  Nanos around = last.end - last.begin;
  std::int64_t kernels = 0;
  for (const Slice& slice : trace.slices) {
    if (slice.start >= last.begin) {
      around -= slice.end - slice.start;
      ++kernels;
    }
  }
  TIDEMARK_CHECK(kernels > 0);
  return around / kernels;
}

std::int64_t OperationsOf(const Trace& trace) {
  const Nanos begin = trace.steps.back().begin;
  return std::count_if(trace.slices.begin(), trace.slices.end(),
                       [begin](const Slice& slice) { return slice.start >= begin; });
}

Nanos TimeToIssue(const Trace& trace, std::int64_t operations) {
  TIDEMARK_CHECK(operations > 0);
  const StepMark& last = trace.steps.back();
  Nanos issued = last.begin;
  for (const Span& span : trace.spans) {
    issued = std::max(issued, span.end);
  }
  return (std::min(issued, last.end) - last.begin) / operations;
}

}  // namespace tidemark
