// SPDX-License-Identifier: Apache-2.0
#include "traces/place.h"

#include <algorithm>

namespace tidemark {

PhasePlace PlaceOf(const Trace& trace, std::size_t event) {
  const std::uint16_t at = trace.memory[event].span;
  if (at == kNoSpan) {
    return {};
  }
  const Span& span = trace.spans[at];
  return {span.phase, span.microbatch, StepOf(trace, event), span.side};
}

std::int64_t StepOf(const Trace& trace, std::size_t event) {
  if (trace.steps.size() < 2) {
    return -1;
  }
  const auto next = std::upper_bound(trace.steps.begin(), trace.steps.end(), event,
                                     [](std::size_t at, const StepMark& step) { return at < step.memory_begin; });
  return std::max<std::int64_t>(0, next - trace.steps.begin() - 1);
}

}  // namespace tidemark
