// SPDX-License-Identifier: Apache-2.0
#include "sim/observe/pass_times.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace tidemark {
namespace {

struct Interval {
  Nanos begin, end;
};

/// Files are hostile: nothing real lies outside of 146 years.
constexpr Nanos kLatest{std::int64_t{1} << 62};

bool IsSane(Nanos begin, Nanos end) { return begin >= Nanos() && end <= kLatest; }

bool IsOnCpu(const Trace& trace) { return trace.role.starts_with("cpu") || trace.origin.ends_with("on cpu"); }

/// What the pass issued to compute streams, by when it ran. A slice without a phase is of the pass in which it began.
std::vector<Interval> WorkOf(const Trace& trace, const std::vector<std::optional<std::size_t>>& passes,
                             std::size_t pass) {
  std::vector<Interval> work;
  for (const Slice& slice : trace.slices) {
    const Span& span = trace.spans[pass];
    const bool is_of_pass =
        slice.span == kNoSpan ? span.begin <= slice.start && slice.start < span.end : passes[slice.span] == pass;
    if (is_of_pass && IsSane(slice.start, slice.end) && trace.streams[slice.stream].kind == "compute") {
      work.push_back({slice.start, slice.end});
    }
  }
  std::sort(work.begin(), work.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return work;
}

std::vector<Interval> Union(const std::vector<Interval>& sorted) {
  std::vector<Interval> united;
  for (const Interval& interval : sorted) {
    if (!united.empty() && interval.begin <= united.back().end) {
      united.back().end = std::max(united.back().end, interval.end);
    } else {
      united.push_back(interval);
    }
  }
  return united;
}

}  // namespace

std::vector<Nanos> DivideTime(const Trace& trace, const std::vector<std::optional<std::size_t>>& passes,
                              std::size_t pass, const std::vector<std::size_t>& cuts) {
  std::vector<Interval> work = Union(WorkOf(trace, passes, pass));
  const Span& span = trace.spans[pass];
  if (work.empty() && IsOnCpu(trace) && IsSane(span.begin, span.end)) {
    work.push_back({span.begin, span.end});
  }
  Nanos all;
  for (const Interval& interval : work) {
    all += interval.end - interval.begin;
  }
  if (all == Nanos()) {
    return {};
  }
  std::vector<Nanos> parts(cuts.size() + 1);
  std::size_t part = 0;
  for (const Interval& interval : work) {
    Nanos from = interval.begin;
    for (; part < cuts.size() && trace.memory[cuts[part]].ready < interval.end; ++part) {
      const Nanos to = std::max(from, trace.memory[cuts[part]].ready);
      parts[part] += to - from;
      from = to;
    }
    parts[part] += interval.end - from;
  }
  return parts;
}

}  // namespace tidemark
