// SPDX-License-Identifier: Apache-2.0
#include "traces/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/check.h"
#include "traces/compare/align.h"
#include "traces/compare/magnitudes.h"
#include "traces/compare/memory_causes.h"
#include "traces/compare/steps.h"
#include "traces/compare/times.h"

namespace tidemark {
namespace {

using RoleTraces = std::map<std::string, std::vector<std::size_t>>;

Bytes Size(Bytes bytes) { return bytes < Bytes(0) ? Bytes(0) - bytes : bytes; }

bool NamesTensors(const Trace& trace) {
  return std::any_of(trace.memory.begin(), trace.memory.end(),
                     [&](const MemoryEvent& event) { return trace.tensors[event.tensor.index].bytes > Bytes(0); });
}

std::optional<Bytes> HighestOf(const Trace& trace, Bytes MemoryEvent::*total) {
  Bytes highest;
  for (const MemoryEvent& event : trace.memory) {
    highest = std::max(highest, event.*total);
  }
  return highest > Bytes(0) ? std::optional(highest) : std::nullopt;
}

/// What a tensor is; where its trace does not say it and the other one does, what its partner is.
Category CategoryOf(const Alignment& alignment, Alignment::Side side, std::uint32_t life) {
  const auto category = [&](Alignment::Side of, std::uint32_t number) {
    const History& history = alignment.history(of);
    return history.trace->tensors[history.lives[number].tensor].category;
  };
  const std::uint32_t partner = alignment.PartnerOf(side, life);
  const bool adopts = alignment.IsUntyped(side) && partner != Alignment::kNone;
  return adopts ? category(Other(side), partner) : category(side, life);
}

SideTotals TotalsOf(const Alignment& alignment, Alignment::Side side) {
  const History& history = alignment.history(side);
  const Trace& trace = *history.trace;
  SideTotals totals;
  totals.peak = history.TotalAt(history.peak);
  if (history.peak >= 0) {
    totals.peak_at = PlaceOf(trace, static_cast<std::size_t>(history.peak));
  }
  for (std::uint32_t life = 0; life < history.lives.size(); ++life) {
    if (History::IsAlive(history.lives[life], history.peak)) {
      totals.by_category[CategoryOf(alignment, side, life)] += history.BytesOf(history.lives[life]);
    }
  }
  totals.allocator = HighestOf(trace, &MemoryEvent::allocator_bytes);
  totals.reserved = HighestOf(trace, &MemoryEvent::reserved_bytes);
  totals.step = trace.step;
  return totals;
}

/// Peaks by place, and which phases there are in order of appearance.
class PhaseTable {
 public:
  void AddPeaks(const History& history, Bytes PhaseComparison::*peak, std::size_t side) {
    const Trace& trace = *history.trace;
    std::map<PhasePlace, std::array<std::optional<Bytes>, 2>>::iterator place;
    std::uint16_t span = kNoSpan;
    for (std::size_t at = 0; at < trace.memory.size(); ++at) {
      if (trace.memory[at].span == kNoSpan) {
        continue;
      }
      if (trace.memory[at].span != span) {
        span = trace.memory[at].span;
        place = places_.try_emplace(PlaceOf(trace, at)).first;
      }
      const Bytes before = history.TotalAt(static_cast<std::ptrdiff_t>(at) - 1);
      const Bytes higher = std::max(before, history.total[at]);
      PhaseComparison& row = Row(place->first.phase);
      row.*peak = std::max(row.*peak, higher);
      place->second[side] = std::max(place->second[side].value_or(higher), higher);
    }
  }

  void AddTimes(const Trace& trace, bool of_work, Nanos PhaseComparison::*time) {
    for (const Span& span : trace.spans) {
      Row(span.phase).*time += of_work ? Nanos() : span.end - span.begin;
    }
    if (of_work) {
      for (const auto& [phase, busy] : BusyTimes(trace)) {
        Row(phase).*time = busy;
      }
    }
  }

  std::vector<PhaseComparison> Take() && {
    for (const auto& [place, peaks] : places_) {
      PhaseComparison& row = Row(place.phase);
      if (!peaks[0] || !peaks[1]) {
        continue;
      }
      const Bytes error = *peaks[0] - *peaks[1];
      if (Size(error) > Size(row.largest_error)) {
        row.largest_error = error;
        row.largest_at = place;
      }
    }
    return std::move(rows_);
  }

 private:
  PhaseComparison& Row(const std::string& phase) {
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) { return row.phase == phase; });
    return found != rows_.end() ? *found : rows_.emplace_back(PhaseComparison{phase, {}, {}, {}, {}, {}, {}});
  }

  std::vector<PhaseComparison> rows_;
  std::map<PhasePlace, std::array<std::optional<Bytes>, 2>> places_;
};

/// What the allocator adds to the tensors, and what it holds beyond its blocks.
void AddAllocator(TraceComparison& comparison, const Alignment& alignment) {
  const SideTotals& ours = comparison.predicted;
  const SideTotals& theirs = comparison.measured;
  if (!ours.allocator || !theirs.allocator) {
    return;
  }
  const Bytes allocator = *ours.allocator - *theirs.allocator;
  if (comparison.of_tensors) {
    comparison.rounding = allocator - comparison.peak_error();
    comparison.rounded = FindRounded(alignment);
  }
  if (ours.reserved && theirs.reserved) {
    comparison.fragmentation = *ours.reserved - *theirs.reserved - allocator;
  }
}

Result<TraceComparison> CompareTwo(const Trace& predicted, const Trace& measured) {
  TIDEMARK_ASSIGN(const SameSteps same, ReduceToSameSteps(predicted, measured));
  TraceComparison comparison;
  comparison.steps = same.kinds;
  comparison.step_times = TimesOfSteps(same);
  comparison.of_tensors = NamesTensors(predicted) && NamesTensors(measured);
  const History ours = MakeHistory(same.predicted, comparison.of_tensors);
  const History theirs = MakeHistory(same.measured, comparison.of_tensors);
  const Alignment alignment(ours, theirs);
  comparison.predicted = TotalsOf(alignment, Alignment::predicted);
  comparison.measured = TotalsOf(alignment, Alignment::measured);
  comparison.paired_by_bytes = alignment.IsUntyped(Alignment::predicted) != alignment.IsUntyped(Alignment::measured);
  PhaseTable phases;
  phases.AddPeaks(ours, &PhaseComparison::predicted_peak, 0);
  phases.AddPeaks(theirs, &PhaseComparison::measured_peak, 1);
  comparison.times_of_work = NamesPhasesOfWork(same.predicted) && NamesPhasesOfWork(same.measured);
  phases.AddTimes(same.predicted, comparison.times_of_work, &PhaseComparison::predicted_time);
  phases.AddTimes(same.measured, comparison.times_of_work, &PhaseComparison::measured_time);
  comparison.phases = std::move(phases).Take();
  if (comparison.of_tensors) {
    comparison.memory = FindMemoryCauses(alignment);
    comparison.unmatched = FindUnmatched(alignment);
    comparison.first = FindFirstDifference(alignment);
  } else if (comparison.peak_error() != Bytes(0)) {
    MemoryCause cause;
    cause.kind = MemoryCauseKind::unexplained;
    cause.at_peak = comparison.peak_error();
    comparison.memory.push_back(std::move(cause));
  }
  AddAllocator(comparison, alignment);
  comparison.operators = CompareOperators(same.predicted, same.measured);
  comparison.time = FindTimeCauses(comparison.operators, comparison.step_error());
  return comparison;
}

bool IsMeasured(const Trace& trace) { return trace.origin.starts_with("measured"); }
bool IsPredicted(const Trace& trace) {
  return trace.origin.starts_with("predicted");  // one that was replayed has the same allocations still
}

/// What another tool calls its only trace is a device ("cuda:0") and tells no role.
RoleTraces ByRole(std::span<const Trace> traces) {
  if (traces.size() == 1 && !IsMeasured(traces.front()) && !IsPredicted(traces.front())) {
    return {{"", {0}}};
  }
  RoleTraces roles;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    roles[traces[i].role].push_back(i);
  }
  return roles;
}

/// A trace that tells no role is of the only one that the other side has.
void NameUnknownRole(RoleTraces& roles, const RoleTraces& others) {
  if (roles.size() == 1 && others.size() == 1 && (roles.begin()->first.empty() || others.begin()->first.empty())) {
    roles = {{std::max(roles.begin()->first, others.begin()->first), roles.begin()->second}};
  }
}

std::string ListOf(const RoleTraces& roles) {
  std::string list;
  for (const auto& [role, traces] : roles) {
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", role);
  }
  return list;
}

Error NoCommonRole(const RoleTraces& ours, const RoleTraces& theirs) {
  return BadInput(fmt::format("two traces of the same role were expected, but the predicted ones are of {} and the "
                              "measured ones of {}",
                              ListOf(ours), ListOf(theirs)),
                  "the pipeline's stages make the roles: predict with the layout that was measured");
}

/// The n-th with the n-th; the last one of the shorter side stands for the rest.
std::vector<std::pair<std::size_t, std::size_t>> PairsOf(const std::vector<std::size_t>& ours,
                                                         const std::vector<std::size_t>& theirs) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    pairs.emplace_back(ours[std::min(i, ours.size() - 1)], theirs[std::min(i, theirs.size() - 1)]);
  }
  return pairs;
}

/// What a measurement has of its own: an executor runs its own kernels on a real device, a framework's snapshot is the
/// framework's.
std::vector<std::string> IndependentOf(std::span<const Trace> measured) {
  if (IsPredicted(measured.front())) {
    return {};
  }
  return IsMeasured(measured.front()) ? std::vector<std::string>{"kernels", "device"}
                                      : std::vector<std::string>{"framework"};
}

std::size_t WorstOf(const std::vector<TraceComparison>& roles) {
  const auto key = [](const TraceComparison& role) {
    return std::pair(Size(role.peak_error()), std::max(role.predicted.peak, role.measured.peak));
  };
  return static_cast<std::size_t>(
      std::max_element(roles.begin(), roles.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); }) -
      roles.begin());
}

}  // namespace

std::string_view Name(MemoryCauseKind kind) {
  constexpr std::array<std::string_view, 12> kNames = {
      "missing",       "extra",           "workspace",         "size",    "dtype",        "freed_later",
      "freed_earlier", "allocated_later", "allocated_earlier", "renamed", "other_moment", "unexplained"};
  return kNames.at(static_cast<std::size_t>(kind));
}

bool Comparison::EqualPeaks() const {
  return std::all_of(roles.begin(), roles.end(), [](const auto& role) { return role.peak_error() == Bytes(0); });
}

Result<Comparison> CompareTraces(std::span<const Trace> predicted, std::span<const Trace> measured) {
  TIDEMARK_CHECK(!predicted.empty() && !measured.empty());
  for (const std::span<const Trace> side : {predicted, measured}) {
    for (const Trace& trace : side) {
      TIDEMARK_TRY(CheckMagnitudes(trace));
    }
  }
  RoleTraces ours = ByRole(predicted), theirs = ByRole(measured);
  NameUnknownRole(ours, theirs);
  NameUnknownRole(theirs, ours);
  Comparison comparison;
  comparison.independent = IndependentOf(measured);
  for (const auto& [role, traces] : ours) {
    const auto found = theirs.find(role);
    if (found == theirs.end()) {
      comparison.only_predicted.push_back(role);
      continue;
    }
    for (const auto& [here, there] : PairsOf(traces, found->second)) {
      TIDEMARK_ASSIGN(TraceComparison two, CompareTwo(predicted[here], measured[there]));
      two.role = role;
      two.predicted_trace = here;
      two.measured_trace = there;
      comparison.roles.push_back(std::move(two));
    }
  }
  for (const auto& [role, traces] : theirs) {
    if (!ours.contains(role)) {
      comparison.only_measured.push_back(role);
    }
  }
  if (comparison.roles.empty()) {
    return NoCommonRole(ours, theirs);
  }
  comparison.worst = WorstOf(comparison.roles);
  return comparison;
}

}  // namespace tidemark
