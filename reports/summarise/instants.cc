// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/instants.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "reports/summarise/family_name.h"

namespace tidemark {
namespace {

bool IsForward(std::string_view phase) { return phase == "forward" || phase == "C_forward"; }
bool IsBackward(std::string_view phase) { return phase == "backward" || phase == "C_backward"; }

/// Phases that are instants by themselves: the highest point within them.
bool IsInstant(std::string_view phase) { return phase == "reduce" || phase == "clip" || phase == "gather"; }

/// An instant before what is alive then is known: after so many memory events.
struct Found {
  std::size_t events = 0;
  Bytes allocated;
  const Span* quiet = nullptr;  ///< the phase, where none of its own events lead to it
};

/// Walks over the events once and remembers of each name the instant at which most is alive.
class Finder {
 public:
  explicit Finder(const Trace& trace) : trace_(trace), has_events_(trace.spans.size()) {
    totals_.reserve(trace.memory.size() + 1);
    totals_.emplace_back();
    for (const MemoryEvent& event : trace.memory) {
      const Bytes bytes = trace.tensors[event.tensor.index].bytes;
      totals_.push_back(event.alloc ? totals_.back() + bytes : totals_.back() - bytes);
    }
  }

  std::map<std::string, Found> Run() && {
    FindInPhases();
    FindQuietPhases();
    FindLoss();
    FindMarks();
    return std::move(found_);
  }

 private:
  const Span* SpanOf(std::size_t event) const {
    const std::uint16_t span = trace_.memory[event].span;
    return span == kNoSpan ? nullptr : &trace_.spans[span];
  }

  /// After the first `events` events.
  void Add(const std::string& name, std::size_t events, const Span* quiet = nullptr) {
    if (events == 0) {
      return;
    }
    const Found found{events, totals_[events], quiet};
    const auto [place, is_new] = found_.try_emplace(name, found);
    if (!is_new && found.allocated > place->second.allocated) {
      place->second = found;
    }
  }

  std::string OptimizerName(Nanos at) const {
    const auto next = std::upper_bound(trace_.steps.begin(), trace_.steps.end(), at,
                                       [](Nanos time, const StepMark& step) { return time < step.begin; });
    if (next == trace_.steps.begin() || (next - 1)->kind.empty()) {
      return "optimizer";
    }
    return (next - 1)->kind == "first" ? kOptimizerFirst : kOptimizerLater;
  }

  void FindInPhases() {
    std::size_t last_backward = 0;  // events up to its end
    for (std::size_t begin = 0, end = 0; begin < trace_.memory.size(); begin = end) {
      const Span* span = SpanOf(begin);
      while (end < trace_.memory.size() && SpanOf(end) == span) {
        ++end;
      }
      if (span == nullptr) {
        continue;
      }
      has_events_[trace_.memory[begin].span] = true;
      if (IsForward(span->phase)) {
        Add("end of forward", end);
      } else if (IsBackward(span->phase)) {
        Add("start of backward", AfterFirstAllocations(begin, end));
        last_backward = end;
      } else if (span->phase == "optimizer") {
        Add("window end", std::exchange(last_backward, 0));
      }
      AddHighest(*span, begin, end);
    }
    Add("window end", last_backward);
  }

  std::size_t AfterFirstAllocations(std::size_t begin, std::size_t end) const {
    std::size_t at = begin;
    while (at < end && trace_.memory[at].alloc) {
      ++at;
    }
    return at;
  }

  void AddHighest(const Span& span, std::size_t begin, std::size_t end) {
    if (span.phase == "optimizer" || span.phase == "B_loss" || IsInstant(span.phase)) {
      const std::string name = span.phase == "optimizer" ? OptimizerName(span.begin)
                               : span.phase == "B_loss"  ? "loss"
                                                         : span.phase;
      for (std::size_t at = begin; at <= end; ++at) {
        Add(name, at, at == begin ? &span : nullptr);
      }
    }
  }

  /// Phases in which nothing is allocated or freed: what is alive is what the events before left.
  void FindQuietPhases() {
    for (std::size_t i = 0; i < trace_.spans.size(); ++i) {
      const Span& span = trace_.spans[i];
      if (has_events_[i]) {
        continue;
      }
      const auto next = std::upper_bound(trace_.memory.begin(), trace_.memory.end(), span.begin,
                                         [](Nanos time, const MemoryEvent& event) { return time < event.issue; });
      const auto events = static_cast<std::size_t>(next - trace_.memory.begin());
      AddHighest(span, events, events);
    }
  }

  /// Where the logits take most; of several such moments the highest.
  void FindLoss() {
    Bytes logits, most;
    std::optional<Found> loss;
    for (std::size_t i = 0; i < trace_.memory.size(); ++i) {
      const MemoryEvent& event = trace_.memory[i];
      const TraceTensor& tensor = trace_.tensors[event.tensor.index];
      if (tensor.category == Category::logits) {
        logits = event.alloc ? logits + tensor.bytes : logits - tensor.bytes;
      }
      if (logits > most || (logits == most && loss && totals_[i + 1] > loss->allocated)) {
        most = logits;
        loss = Found{i + 1, totals_[i + 1], nullptr};
      }
    }
    if (loss) {
      found_["loss"] = *loss;
    }
  }

  void FindMarks() {
    for (const InstantMark& mark : trace_.marks) {
      if (mark.events <= trace_.memory.size()) {
        Add(mark.name, mark.events);
      }
    }
  }

  const Trace& trace_;
  std::vector<Bytes> totals_;  ///< after so many events
  std::vector<bool> has_events_;
  std::map<std::string, Found> found_;
};

/// What is alive at `found.events`, given how many members of each family are.
Instant MakeInstant(const Trace& trace, const std::string& name, const Found& found,
                    const std::vector<std::int64_t>& counts) {
  Instant instant;
  instant.name = name;
  instant.place = found.quiet == nullptr
                      ? PlaceOf(trace, found.events - 1)
                      : PhasePlace{found.quiet->phase, found.quiet->microbatch, -1, found.quiet->side};
  instant.at = trace.memory[found.events - 1].issue;
  instant.allocated = found.allocated;
  std::map<FamilyKey, std::size_t> families;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) {
      const TraceTensor& tensor = trace.tensors[i];
      const Bytes bytes = tensor.bytes * counts[i];
      const FamilyKey family = FamilyKeyOf(tensor.name, static_cast<std::uint32_t>(i));
      const auto [place, is_new] = families.emplace(family, instant.live.size());
      if (is_new) {
        instant.live.push_back({family.first, tensor.category, 0, Bytes()});
      }
      instant.live[place->second].count += counts[i];
      instant.live[place->second].bytes += bytes;
      instant.by_category[tensor.category] += bytes;
    }
  }
  std::stable_sort(instant.live.begin(), instant.live.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return instant;
}

}  // namespace

std::vector<Instant> FindInstants(const Trace& trace) {
  std::multimap<std::size_t, std::pair<std::string, Found>> in_order;
  for (auto& [name, found] : Finder(trace).Run()) {
    in_order.emplace(found.events, std::pair(name, found));
  }
  std::vector<Instant> instants;
  std::vector<std::int64_t> counts(trace.tensors.size());
  std::size_t events = 0;
  for (const auto& [at, named] : in_order) {
    for (; events < at; ++events) {
      counts[trace.memory[events].tensor.index] += trace.memory[events].alloc ? 1 : -1;
    }
    instants.push_back(MakeInstant(trace, named.first, named.second, counts));
  }
  return instants;
}

}  // namespace tidemark
