// SPDX-License-Identifier: Apache-2.0
#include "traces/compare/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "traces/compare/history.h"
#include "traces/place.h"

namespace tidemark {
namespace {

std::string KindsOf(const Trace& trace) {
  std::set<std::string> kinds;
  for (const StepMark& step : trace.steps) {
    kinds.insert(step.kind);
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

/// Builds the trace of some steps, one after the other.
class StepKeeper {
 public:
  explicit StepKeeper(const Trace& trace)
      : trace_(trace), history_(MakeHistory(trace, true)), is_kept_(trace.steps.size()) {
    kept_ = trace;
    kept_.steps.clear();
    kept_.memory.clear();
    kept_.slices.clear();
    kept_.marks.clear();
    kept_.step = Nanos();
  }

  void Keep(std::size_t index) {
    const StepMark& step = trace_.steps[index];
    const std::size_t begin = std::min<std::size_t>(step.memory_begin, trace_.memory.size());
    const std::size_t end = index + 1 < trace_.steps.size()
                                ? std::min<std::size_t>(trace_.steps[index + 1].memory_begin, trace_.memory.size())
                                : trace_.memory.size();
    kept_.steps.push_back({step.kind, step.begin, step.end, kept_.memory.size()});
    Restore(begin, step.begin);
    kept_.memory.insert(kept_.memory.end(), trace_.memory.begin() + static_cast<std::ptrdiff_t>(begin),
                        trace_.memory.begin() + static_cast<std::ptrdiff_t>(end));
    kept_until_ = end;
    is_kept_[index] = true;
    kept_.step += step.end - step.begin;
  }

  Trace Take() && {
    for (const Slice& slice : trace_.slices) {
      const auto after = std::upper_bound(trace_.steps.begin(), trace_.steps.end(), slice.start,
                                          [](Nanos at, const StepMark& step) { return at < step.begin; });
      if (after != trace_.steps.begin() && is_kept_[static_cast<std::size_t>(after - trace_.steps.begin()) - 1]) {
        kept_.slices.push_back(slice);
      }
    }
    return std::move(kept_);
  }

 private:
  /// From what the last kept step left to what is alive before event `begin`: frees, then allocations.
  void Restore(std::size_t begin, Nanos at) {
    if (begin == kept_until_) {
      return;
    }
    const auto before = [](std::size_t events) { return static_cast<std::ptrdiff_t>(events) - 1; };
    for (const bool alloc : {false, true}) {
      for (const Life& life : history_.lives) {
        const bool was = History::IsAlive(life, before(kept_until_)), is = History::IsAlive(life, before(begin));
        if (was != is && is == alloc) {
          MemoryEvent event = trace_.memory[alloc ? life.born : life.died];
          event.issue = event.ready = at;
          event.span = kNoSpan;
          event.allocator_bytes = trace_.memory[begin - 1].allocator_bytes;
          event.reserved_bytes = trace_.memory[begin - 1].reserved_bytes;
          kept_.memory.push_back(event);
        }
      }
    }
  }

  const Trace& trace_;
  History history_;
  std::vector<bool> is_kept_;
  Trace kept_;
  std::size_t kept_until_ = 0;
};

}  // namespace

Result<std::vector<std::pair<std::size_t, std::size_t>>> MatchSteps(const Trace& predicted, const Trace& measured) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  std::size_t next = 0;
  for (std::size_t i = 0; i < predicted.steps.size(); ++i) {
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

}  // namespace tidemark
