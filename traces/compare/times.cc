// SPDX-License-Identifier: Apache-2.0
#include "traces/compare/times.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "traces/family.h"
#include "traces/trace.h"

namespace tidemark {
namespace {

constexpr std::size_t kNamed = 3;  ///< operators that a cause names

using Slices = std::vector<const Slice*>;

/// Work of one trace by kind of stream and name, each in order of its start.
std::map<std::pair<std::string, std::string>, Slices> SlicesByName(const Trace& trace) {
  std::vector<std::map<std::uint32_t, Slices>> by_stream(trace.streams.size());
  for (const Slice& slice : trace.slices) {
    by_stream[slice.stream][slice.name.index].push_back(&slice);
  }
  std::map<std::pair<std::string, std::string>, Slices> all;
  for (std::size_t stream = 0; stream < by_stream.size(); ++stream) {
    for (const auto& [name, slices] : by_stream[stream]) {
      Slices& to = all[{trace.streams[stream].kind, FamilyOf(trace.strings[name])}];
      to.insert(to.end(), slices.begin(), slices.end());
    }
  }
  for (auto& [key, slices] : all) {
    std::stable_sort(slices.begin(), slices.end(), [](const Slice* a, const Slice* b) { return a->start < b->start; });
  }
  return all;
}

using Intervals = std::vector<std::pair<Nanos, Nanos>>;

/// Disjoint, ascending.
Intervals Joined(Intervals times) {
  std::sort(times.begin(), times.end());
  Intervals joined;
  for (const auto& time : times) {
    if (joined.empty() || time.first > joined.back().second) {
      joined.push_back(time);
    } else {
      joined.back().second = std::max(joined.back().second, time.second);
    }
  }
  return joined;
}

/// When collectives ran.
Intervals CollectiveTimes(const Trace& trace) {
  Intervals times;
  for (const Slice& slice : trace.slices) {
    const std::string& kind = trace.streams[slice.stream].kind;
    if ((kind == "collective" || kind == "peer") && slice.end > slice.start) {
      times.emplace_back(slice.start, slice.end);
    }
  }
  return Joined(std::move(times));
}

bool Overlaps(const Intervals& times, const Slice& slice) {
  const auto after = std::lower_bound(times.begin(), times.end(), slice.end,
                                      [](const auto& time, Nanos end) { return time.first < end; });
  return after != times.begin() && (after - 1)->second > slice.start;
}

Nanos Sum(const Slices& slices) {
  Nanos sum;
  for (const Slice* slice : slices) {
    sum += slice->end - slice->start;
  }
  return sum;
}

/// Of kernels of one name: how much longer those took that ran beside a collective.
Nanos Contended(const Slices& predicted, const Slices& measured, const Intervals& busy) {
  Nanos more;
  for (std::size_t i = 0; i < measured.size() && predicted.size() == measured.size(); ++i) {
    const Nanos longer = (measured[i]->end - measured[i]->start) - (predicted[i]->end - predicted[i]->start);
    if (longer > Nanos(0) && Overlaps(busy, *measured[i])) {
      more += longer;
    }
  }
  return more;
}

void Add(TimeCause& cause, const std::string& name, Nanos error, std::map<std::string, Nanos>& shares) {
  cause.error += error;
  shares[name] += error;
}

/// The operators that move a cause the way it goes.
void NameOperators(TimeCause& cause, const std::map<std::string, Nanos>& shares) {
  std::vector<std::pair<Nanos, std::string>> sorted;
  for (const auto& [name, error] : shares) {
    if (error != Nanos(0) && (error > Nanos(0)) == (cause.error > Nanos(0))) {
      sorted.emplace_back(error, name);
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.first.count()) > std::abs(b.first.count()); });
  for (std::size_t i = 0; i < std::min(kNamed, sorted.size()); ++i) {
    cause.operators.push_back(sorted[i].second);
  }
}

}  // namespace

std::vector<OperatorComparison> CompareOperators(const Trace& predicted, const Trace& measured) {
  if (measured.clock == kUntimed) {
    return {};  // steps alone are compared
  }
  auto ours = SlicesByName(predicted), theirs = SlicesByName(measured);
  const auto busy = CollectiveTimes(measured);
  for (const auto& [key, slices] : theirs) {
    ours.try_emplace(key);
  }
  std::vector<OperatorComparison> operators;
  for (const auto& [key, slices] : ours) {
    const Slices& there = theirs[key];
    OperatorComparison row;
    row.stream_kind = key.first;
    row.name = key.second;
    row.predicted_count = static_cast<std::int64_t>(slices.size());
    row.measured_count = static_cast<std::int64_t>(there.size());
    row.predicted = Sum(slices);
    row.measured = Sum(there);
    row.contended = key.first == "compute" ? Contended(slices, there, busy) : Nanos();
    operators.push_back(std::move(row));
  }
  std::stable_sort(operators.begin(), operators.end(), [](const auto& a, const auto& b) {
    return std::abs((a.predicted - a.measured).count()) > std::abs((b.predicted - b.measured).count());
  });
  return operators;
}

bool NamesPhasesOfWork(const Trace& trace) {
  return std::any_of(trace.slices.begin(), trace.slices.end(),
                     [](const Slice& slice) { return slice.span != kNoSpan; });
}

std::map<std::string, Nanos> BusyTimes(const Trace& trace) {
  std::map<std::string, Intervals> by_phase;
  for (const Slice& slice : trace.slices) {
    if (slice.span != kNoSpan) {
      by_phase[trace.spans[slice.span].phase].emplace_back(slice.start, slice.end);
    }
  }
  std::map<std::string, Nanos> times;
  for (auto& [phase, intervals] : by_phase) {
    for (const auto& [start, end] : Joined(std::move(intervals))) {
      times[phase] += end - start;
    }
  }
  return times;
}

std::vector<TimeCause> FindTimeCauses(const std::vector<OperatorComparison>& operators, Nanos error) {
  TimeCause kernels{"kernels", {}, {}}, contention{"contention", {}, {}}, lone{"operators", {}, {}};
  std::map<std::string, Nanos> of_kernels, of_contention, of_lone;
  bool ours = false, theirs = false;  // whether a side has kernels
  for (const OperatorComparison& row : operators) {
    if (row.stream_kind != "compute") {
      continue;
    }
    const Nanos difference = row.predicted - row.measured;
    (row.predicted_count > 0 ? ours : theirs) = true;
    (row.measured_count > 0 ? theirs : ours) = true;
    if (row.predicted_count != row.measured_count) {
      Add(lone, row.name, difference, of_lone);
      continue;
    }
    Add(contention, row.name, Nanos(0) - row.contended, of_contention);
    Add(kernels, row.name, difference + row.contended, of_kernels);
  }
  const bool both_compute = ours && theirs;
  TimeCause rest{both_compute ? "waiting" : "unexplained", error, {}};
  std::vector<TimeCause> causes;
  if (both_compute) {
    NameOperators(kernels, of_kernels);
    NameOperators(contention, of_contention);
    NameOperators(lone, of_lone);
    causes = {kernels, contention, lone};
    rest.error -= kernels.error + contention.error + lone.error;
  }
  causes.push_back(rest);
  std::erase_if(causes, [](const TimeCause& cause) { return cause.error == Nanos(0); });
  std::stable_sort(causes.begin(), causes.end(), [](const TimeCause& a, const TimeCause& b) {
    return std::abs(a.error.count()) > std::abs(b.error.count());
  });
  return causes;
}

}  // namespace tidemark
