// SPDX-License-Identifier: Apache-2.0
#include "traces/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/text.h"

namespace tidemark {
namespace {

constexpr Bytes kLargest(std::int64_t{1} << 62);
constexpr Nanos kFarthest(std::int64_t{1} << 61);  // 73 years: two of them can be added and subtracted

bool IsTooFar(Nanos begin, Nanos end) { return begin < Nanos(0) - kFarthest || end > kFarthest; }

std::string MemberName(const Trace& trace, const MemoryEvent& event) {
  return fmt::format("{}[{}][{}]", trace.tensors[event.tensor.index].name, event.index0, event.index1);
}

std::string VerifyTables(const Trace& trace) {
  if (trace.spans.size() > kNoSpan) {
    return fmt::format("{} phases, but events can name only 65,535", trace.spans.size());
  }
  for (const TraceTensor& tensor : trace.tensors) {
    if (tensor.bytes < Bytes(0) || tensor.bytes > kLargest) {
      return fmt::format("tensor '{}' has an impossible size of {} bytes", tensor.name, tensor.bytes.count());
    }
  }
  for (const Span& span : trace.spans) {
    if (span.end < span.begin) {
      return fmt::format("phase '{}' ends at {} ns, before it begins at {} ns", span.phase, span.end.count(),
                         span.begin.count());
    }
    if (IsTooFar(span.begin, span.end)) {
      return fmt::format("phase '{}' is at a time that cannot be", span.phase);
    }
  }
  return {};
}

std::string VerifySteps(const Trace& trace) {
  Nanos end;
  std::uint64_t event = 0;
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const StepMark& step = trace.steps[i];
    if (step.begin < end || step.end < step.begin) {
      return fmt::format("step {} of {} runs backwards", i + 1, trace.steps.size());
    }
    if (IsTooFar(step.begin, step.end)) {
      return fmt::format("step {} of {} is at a time that cannot be", i + 1, trace.steps.size());
    }
    if (step.memory_begin < event) {
      return fmt::format("step {} of {} begins at an earlier event than the step before", i + 1, trace.steps.size());
    }
    end = step.end;
    event = step.memory_begin;
  }
  return {};
}

std::string VerifySlices(const Trace& trace) {
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    const Slice& slice = trace.slices[i];
    if (slice.stream >= trace.streams.size() || slice.name.index >= trace.strings.size()) {
      return fmt::format("slice {} names a stream or an operation that the trace does not have", i);
    }
    if (slice.span != kNoSpan && slice.span >= trace.spans.size()) {
      return fmt::format("slice {} names a phase that the trace does not have", i);
    }
    if (slice.end < slice.start) {
      return fmt::format("slice {} ('{}') ends before it starts", i, trace.strings[slice.name.index]);
    }
    if (IsTooFar(slice.start, slice.end)) {
      return fmt::format("slice {} ('{}') is at a time that cannot be", i, trace.strings[slice.name.index]);
    }
  }
  return {};
}

/// Follows the life of every buffer; totals are checked against overflow, because files are hostile.
class MemoryVerifier {
 public:
  explicit MemoryVerifier(const Trace& trace) : trace_(trace) {}

  std::string Verify() {
    for (std::size_t i = 0; i < trace_.memory.size(); ++i) {
      if (const std::string fault = VerifyEvent(trace_.memory[i]); !fault.empty()) {
        return fmt::format("memory event {}: {}", i, fault);
      }
    }
    return {};
  }

 private:
  std::string VerifyEvent(const MemoryEvent& event) {
    if (event.tensor.index >= trace_.tensors.size()) {
      return "names a tensor that the trace does not have";
    }
    if (event.span != kNoSpan && event.span >= trace_.spans.size()) {
      return "names a phase that the trace does not have";
    }
    if (event.stream != kNoStream && event.stream >= trace_.streams.size()) {
      return "names a stream that the trace does not have";
    }
    if (event.waits && event.alloc) {
      return "an allocation waits for other streams, as only a free can";
    }
    if (event.issue < last_issue_) {
      return "issued before the event that precedes it";
    }
    if (IsTooFar(event.issue, event.issue) || IsTooFar(event.ready, event.ready)) {
      return "is at a time that cannot be";
    }
    if (event.allocator_bytes < Bytes(0) || event.allocator_bytes > kLargest || event.reserved_bytes < Bytes(0) ||
        event.reserved_bytes > kLargest) {
      return "tells totals that cannot be";
    }
    last_issue_ = event.issue;
    return event.alloc ? VerifyAlloc(event) : VerifyFree(event);
  }

  std::string VerifyAlloc(const MemoryEvent& event) {
    if (!alive_.insert({event.tensor.index, event.index0, event.index1}).second) {
      return fmt::format("allocates {}, which is alive already", MemberName(trace_, event));
    }
    const Bytes bytes = trace_.tensors[event.tensor.index].bytes;
    if (bytes > kLargest - total_) {
      return "more than 2^62 bytes are alive";
    }
    total_ += bytes;
    return {};
  }

  std::string VerifyFree(const MemoryEvent& event) {
    if (alive_.erase({event.tensor.index, event.index0, event.index1}) == 0) {
      return fmt::format("frees {}, which is not alive", MemberName(trace_, event));
    }
    total_ -= trace_.tensors[event.tensor.index].bytes;
    return {};
  }

  const Trace& trace_;
  std::set<std::tuple<std::uint32_t, std::int32_t, std::int32_t>> alive_;
  Bytes total_;
  Nanos last_issue_;
};

}  // namespace

std::string RefusedText(Bytes requested) {
  return fmt::format("a request of {} bytes was refused, at which it ends", Grouped(requested.count()));
}

bool Tells(const Trace& trace, Bytes MemoryEvent::*total) {
  return std::any_of(trace.memory.begin(), trace.memory.end(),
                     [&](const MemoryEvent& event) { return event.*total > Bytes(0); });
}

std::string Verify(const Trace& trace) {
  if (IsTooFar(trace.step, trace.step)) {
    return "its length cannot be";
  }
  if (std::string fault = VerifyTables(trace); !fault.empty()) {
    return fault;
  }
  if (std::string fault = VerifySteps(trace); !fault.empty()) {
    return fault;
  }
  if (std::string fault = MemoryVerifier(trace).Verify(); !fault.empty()) {
    return fault;
  }
  for (const InstantMark& mark : trace.marks) {
    if (mark.events == 0) {
      return fmt::format("the instant '{}' lies before its first memory event", mark.name);
    }
  }
  return VerifySlices(trace);
}

}  // namespace tidemark
