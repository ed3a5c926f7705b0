// SPDX-License-Identifier: Apache-2.0
#include "traces/compare/steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "traces/compare/history.h"
#include "traces/trace.h"

namespace tidemark {
namespace {

std::string KindsOf(const Trace& trace) {
  std::set<std::string> kinds;
  for (const StepMark& step : trace.steps) {
    kinds.insert(step.kind);
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

bool KnowsNoKinds(const Trace& trace) {
  return std::all_of(trace.steps.begin(), trace.steps.end(), [](const StepMark& step) { return step.kind.empty(); });
}

bool IsSteady(const Trace& trace) {
  return std::ranges::all_of(trace.steps, [](const StepMark& step) { return step.kind == "steady"; });
}

/// So many steps from the front are whole: a trace that was cut off ends within the last one that has any events. The
/// only one that has is taken as it is.
std::size_t WholeSteps(const Trace& trace) {
  const auto begun = static_cast<std::size_t>(std::ranges::count_if(
      trace.steps, [&](const StepMark& step) { return step.memory_begin < trace.memory.size(); }));
  const bool is_cut = begun < trace.steps.size() || !trace.missing.empty();
  return is_cut && begun > 1 ? begun - 1 : begun;
}

/// The last steps of both.
std::vector<std::pair<std::size_t, std::size_t>> PairFromTheEnd(std::size_t ours, std::size_t theirs) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t back = std::min(ours, theirs); back > 0; --back) {
    pairs.emplace_back(ours - back, theirs - back);
  }
  return pairs;
}

Nanos Median(std::vector<Nanos> times) {
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : times[middle - 1] + (times[middle] - times[middle - 1]) / 2;
}

constexpr std::size_t kDropped = ~std::size_t{0};

/// Builds the trace of some steps, one after the other.
class StepKeeper {
 public:
  explicit StepKeeper(const Trace& trace)
      : trace_(trace),
        history_(MakeHistory(trace, true)),
        shift_(trace.steps.size()),
        spans_(trace.spans.size(), kDropped) {
    kept_ = trace;
    kept_.steps.clear();
    kept_.memory.clear();
    kept_.spans.clear();
    kept_.slices.clear();
    kept_.marks.clear();
    kept_.step = Nanos();
  }

  void Keep(std::size_t index) {
    const StepMark& step = trace_.steps[index];
    const std::size_t begin = EventsBefore(index), end = EventsBefore(index + 1);
    shift_[index] = kept_.step - step.begin;
    KeepSpans(index);
    const Nanos at = kept_.step;
    kept_.step += step.end - step.begin;
    kept_.steps.push_back({step.kind, at, kept_.step, kept_.memory.size()});
    Restore(begin, at);
    for (std::size_t i = begin; i < end; ++i) {
      MemoryEvent& event = kept_.memory.emplace_back(trace_.memory[i]);
      event.issue += *shift_[index];
      event.ready += *shift_[index];
      event.span = KeptSpan(event.span);
    }
    kept_until_ = end;
  }

  Trace Take() && {
    for (const Slice& slice : trace_.slices) {
      if (const auto shift = ShiftAt(slice.start)) {
        kept_.slices.push_back(
            {slice.stream, slice.name, slice.start + *shift, slice.end + *shift, KeptSpan(slice.span)});
      }
    }
    return std::move(kept_);
  }

 private:
  /// What the allocator's total changed by with an event.
  Bytes BlockOf(std::size_t event) const {
    const Bytes before = event == 0 ? Bytes(0) : trace_.memory[event - 1].allocator_bytes;
    return trace_.memory[event].allocator_bytes - before;
  }

  std::size_t EventsBefore(std::size_t step) const {
    return step < trace_.steps.size() ? std::min<std::size_t>(trace_.steps[step].memory_begin, trace_.memory.size())
                                      : trace_.memory.size();
  }

  std::size_t StepAt(Nanos moment) const {
    const auto after = std::upper_bound(trace_.steps.begin(), trace_.steps.end(), moment,
                                        [](Nanos at, const StepMark& step) { return at < step.begin; });
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - trace_.steps.begin() - 1, 0));
  }

  std::optional<Nanos> ShiftAt(Nanos moment) const { return shift_[StepAt(moment)]; }

  /// Spans of the step, and where they stand now.
  void KeepSpans(std::size_t index) {
    for (std::size_t i = 0; i < trace_.spans.size(); ++i) {
      if (StepAt(trace_.spans[i].begin) == index) {
        spans_[i] = kept_.spans.size();
        Span& span = kept_.spans.emplace_back(trace_.spans[i]);
        span.begin += *shift_[index];
        span.end += *shift_[index];
      }
    }
  }

  std::uint16_t KeptSpan(std::uint16_t span) const {
    return span == kNoSpan || spans_[span] == kDropped ? kNoSpan : static_cast<std::uint16_t>(spans_[span]);
  }

  /// From what the last kept step left to what is alive before event `begin`: frees, then allocations.
  void Restore(std::size_t begin, Nanos at) {
    if (begin == kept_until_) {
      return;
    }
    const std::size_t first = kept_.memory.size();
    const auto before = [](std::size_t events) { return static_cast<std::ptrdiff_t>(events) - 1; };
    for (const bool alloc : {false, true}) {
      for (const Life& life : history_.lives) {
        const bool was = History::IsAlive(life, before(kept_until_)), is = History::IsAlive(life, before(begin));
        if (was != is && is == alloc) {
          MemoryEvent event = trace_.memory[alloc ? life.born : life.died];
          event.issue = event.ready = at;
          event.span = kNoSpan;
          kept_.memory.push_back(event);
          blocks_.push_back(BlockOf(alloc ? life.born : life.died));
        }
      }
    }
    // The allocator's totals lead up to what they are when the step begins.
    Bytes total = trace_.memory[begin - 1].allocator_bytes;
    for (std::size_t i = kept_.memory.size(); i-- > first; blocks_.pop_back()) {
      kept_.memory[i].allocator_bytes = total;
      kept_.memory[i].reserved_bytes = trace_.memory[begin - 1].reserved_bytes;
      total -= blocks_.back();
    }
  }

  const Trace& trace_;
  History history_;
  Trace kept_;
  std::vector<std::optional<Nanos>> shift_;  ///< by step: to its new time; nothing: it is left out
  std::vector<std::size_t> spans_;           ///< where the trace's spans stand now
  std::vector<Bytes> blocks_;                ///< of events that Restore makes
  std::size_t kept_until_ = 0;
};

}  // namespace

Result<std::vector<std::pair<std::size_t, std::size_t>>> MatchSteps(const Trace& predicted, const Trace& measured) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  std::size_t begin = 0, next = 0;
  if (KnowsNoKinds(predicted) != KnowsNoKinds(measured)) {
    const bool ours_knows = KnowsNoKinds(measured);
    const Trace& knows = ours_knows ? predicted : measured;
    if (IsSteady(knows)) {
      return PairFromTheEnd(WholeSteps(predicted), WholeSteps(measured));
    }
    const std::size_t steps = (ours_knows ? measured : predicted).steps.size();
    const bool from_second = knows.steps.front().kind == "second" && steps > 1;
    (ours_knows ? next : begin) = from_second ? 1 : 0;
  }
  for (std::size_t i = begin; i < predicted.steps.size(); ++i) {
    const std::string& kind = predicted.steps[i].kind;
    std::size_t j = next;
    while (j < measured.steps.size() && !kind.empty() && !measured.steps[j].kind.empty() &&
           measured.steps[j].kind != kind) {
      ++j;
    }
    if (j < measured.steps.size()) {
      pairs.emplace_back(i, j);
      next = j + 1;
    }
  }
  if (pairs.empty() && !predicted.steps.empty() && !measured.steps.empty()) {
    return BadInput(
        fmt::format("two traces with a step of the same kind were expected, but the predicted one has {} "
                    "and the measured one {}",
                    KindsOf(predicted), KindsOf(measured)),
        measured.steps.size() == 1
            ? fmt::format("predict that step: tidemark predict JOB --step {} --trace FILE", measured.steps.front().kind)
            : fmt::format("predict as many steps: tidemark predict JOB --steps {} --trace FILE",
                          measured.steps.size()));
  }
  return pairs;
}

Trace KeepSteps(const Trace& trace, const std::vector<std::size_t>& steps) {
  StepKeeper keeper(trace);
  for (const std::size_t step : steps) {
    keeper.Keep(step);
  }
  return std::move(keeper).Take();
}

Result<SameSteps> ReduceToSameSteps(const Trace& predicted, const Trace& measured) {
  TIDEMARK_ASSIGN(const auto pairs, MatchSteps(predicted, measured));
  SameSteps same{predicted, measured, {}, {}, {}};
  if (pairs.empty()) {  // one of them marks no steps
    same.predicted.steps.clear();
    same.measured.steps.clear();
    return same;
  }
  std::vector<std::size_t> ours, theirs;
  for (const auto& [here, there] : pairs) {
    ours.push_back(here);
    theirs.push_back(there);
    const std::string& kind = predicted.steps[here].kind;
    same.kinds.push_back(kind.empty() ? measured.steps[there].kind : kind);
  }
  if (ours.size() < predicted.steps.size()) {
    same.predicted = KeepSteps(predicted, ours);
  }
  if (theirs.size() < measured.steps.size()) {
    same.measured = KeepSteps(measured, theirs);
  }
  same.predicted_steps = std::move(ours);
  same.measured_steps = std::move(theirs);
  return same;
}

std::vector<StepTimes> TimesOfSteps(const SameSteps& same) {
  std::vector<StepTimes> rows;
  std::vector<std::vector<Nanos>> predicted, measured;  // parallel to the rows
  for (std::size_t i = 0; i < same.kinds.size(); ++i) {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.kind == same.kinds[i]; });
    const auto row = static_cast<std::size_t>(found - rows.begin());
    if (found == rows.end()) {
      rows.push_back({same.kinds[i], 0, {}, {}});
      predicted.emplace_back();
      measured.emplace_back();
    }
    ++rows[row].count;
    predicted[row].push_back(same.predicted.steps[i].end - same.predicted.steps[i].begin);
    measured[row].push_back(same.measured.steps[i].end - same.measured.steps[i].begin);
  }
  for (std::size_t row = 0; row < rows.size(); ++row) {
    rows[row].predicted = Median(std::move(predicted[row]));
    rows[row].measured = Median(std::move(measured[row]));
  }
  return rows;
}

}  // namespace tidemark
