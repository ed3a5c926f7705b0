// SPDX-License-Identifier: Apache-2.0
#include "traces/compare/magnitudes.h"

#include <cstdint>

namespace tidemark {
namespace {

__extension__ using Wide = __int128;

/// 2^59: half an exbibyte, or 18 years. Sums of a few such numbers stay within 64 bits.
constexpr Wide kLargest = Wide{1} << 59;

bool IsPlausible(std::int64_t number) { return number > -kLargest && number < kLargest; }

template <class Row>
bool ArePlausible(const std::vector<Row>& rows, Nanos Row::*begin, Nanos Row::*end) {
  Wide sum = 0;
  for (const Row& row : rows) {
    sum += Wide{(row.*end).count()} - (row.*begin).count();
    if (!IsPlausible((row.*begin).count()) || !IsPlausible((row.*end).count()) || sum >= kLargest) {
      return false;
    }
  }
  return true;
}

bool ArePlausible(const Trace& trace) {
  Wide sum = 0;
  for (const MemoryEvent& event : trace.memory) {
    sum += event.alloc ? trace.tensors[event.tensor.index].bytes.count() : 0;
    for (const std::int64_t number :
         {event.issue.count(), event.ready.count(), event.allocator_bytes.count(), event.reserved_bytes.count()}) {
      if (!IsPlausible(number)) {
        return false;
      }
    }
  }
  return sum < kLargest && IsPlausible(trace.step.count());
}

}  // namespace

Status CheckMagnitudes(const Trace& trace) {
  if (!ArePlausible(trace) || !ArePlausible(trace.spans, &Span::begin, &Span::end) ||
      !ArePlausible(trace.steps, &StepMark::begin, &StepMark::end) ||
      !ArePlausible(trace.slices, &Slice::start, &Slice::end)) {
    return BadInput("a trace with plausible times and sizes was expected, but some of them add up to more than 2^59");
  }
  return Done{};
}

}  // namespace tidemark
