// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/peak.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "reports/summarise/family_name.h"
#include "reports/summarise/instant_names.h"

namespace tidemark {
namespace {

using Member = std::tuple<std::uint32_t, std::int32_t, std::int32_t>;

Member MemberOf(const MemoryEvent& event) { return {event.tensor.index, event.index0, event.index1}; }

struct Highest {
  std::size_t events = 0;  ///< how many events lead to it
  Bytes bytes;
};

/// The first of the highest totals: only a strictly higher one replaces it.
Highest FindHighest(const Trace& trace) {
  Highest highest;
  Bytes total;
  for (std::size_t i = 0; i < trace.memory.size(); ++i) {
    const MemoryEvent& event = trace.memory[i];
    const Bytes bytes = trace.tensors[event.tensor.index].bytes;
    total = event.alloc ? total + bytes : total - bytes;
    if (total > highest.bytes) {
      highest = {i + 1, total};
    }
  }
  return highest;
}

/// What the first `events` events leave alive: member -> index of its allocation.
std::map<Member, std::size_t> AliveAfter(const Trace& trace, std::size_t events) {
  std::map<Member, std::size_t> alive;
  for (std::size_t i = 0; i < events; ++i) {
    if (trace.memory[i].alloc) {
      alive.emplace(MemberOf(trace.memory[i]), i);
    } else {
      alive.erase(MemberOf(trace.memory[i]));
    }
  }
  return alive;
}

/// For each member in `alive`: the event after `events` that frees it.
std::map<Member, std::size_t> FreesOf(const Trace& trace, const std::map<Member, std::size_t>& alive,
                                      std::size_t events) {
  std::map<Member, std::size_t> frees;
  for (std::size_t i = events; i < trace.memory.size(); ++i) {
    const Member member = MemberOf(trace.memory[i]);
    if (!trace.memory[i].alloc && alive.contains(member)) {
      frees.emplace(member, i);  // keeps the first: later ones end later lives
    }
  }
  return frees;
}

LiveBuffers Summarise(const Trace& trace, const TraceTensor& tensor, std::size_t first_alloc) {
  LiveBuffers live;
  live.name = FamilyName(tensor.name);
  live.category = tensor.category;
  live.dtype = tensor.dtype;
  live.sharding = tensor.sharding;
  live.since = trace.memory[first_alloc].issue;
  live.born = PlaceOf(trace, first_alloc);
  return live;
}

std::vector<LiveBuffers> SummariseLive(const Trace& trace, std::size_t events) {
  const std::map<Member, std::size_t> alive = AliveAfter(trace, events);
  const std::map<Member, std::size_t> frees = FreesOf(trace, alive, events);
  struct Family {
    std::uint32_t tensor = 0;  ///< the first of them
    std::int64_t count = 0;
    Bytes bytes;
    std::size_t first_alloc = ~std::size_t{0}, last_free = 0;
    bool outlives = false;
    std::set<std::int64_t> microbatches;
  };
  using Kind = std::tuple<FamilyKey, DType, std::string>;
  std::map<Kind, std::size_t> places;
  std::vector<Family> families;
  for (const auto& [member, alloc] : alive) {
    const std::uint32_t id = std::get<0>(member);
    const TraceTensor& tensor = trace.tensors[id];
    const auto [place, is_new] =
        places.emplace(Kind(FamilyKeyOf(tensor.name, id), tensor.dtype, tensor.sharding), families.size());
    if (is_new) {
      families.emplace_back().tensor = id;
    }
    Family& family = families[place->second];
    ++family.count;
    family.bytes += tensor.bytes;
    family.first_alloc = std::min(family.first_alloc, alloc);
    const std::uint16_t span = trace.memory[alloc].span;
    family.microbatches.insert(span == kNoSpan ? -1 : trace.spans[span].microbatch);
    const auto free = frees.find(member);
    family.outlives = family.outlives || free == frees.end();
    family.last_free = std::max(family.last_free, free == frees.end() ? 0 : free->second);
  }
  const InstantNames names(trace);
  std::vector<LiveBuffers> all;
  for (const Family& family : families) {
    LiveBuffers live = Summarise(trace, trace.tensors[family.tensor], family.first_alloc);
    live.since_phase = names.Born(family.first_alloc);
    live.count = family.count;
    live.bytes = family.bytes;
    live.copies = static_cast<std::int64_t>(family.microbatches.size());
    live.died = family.outlives ? PhasePlace() : PlaceOf(trace, family.last_free);
    live.until_phase = family.outlives ? names.Never() : names.Died(family.last_free);
    if (!family.outlives) {
      live.until = trace.memory[family.last_free].issue;
    }
    all.push_back(std::move(live));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return all;
}

/// "microbatch 2", "query chunk 2".
std::string Numbered(const std::string& side, std::int64_t number) {
  return side.empty() ? fmt::format("microbatch {}", number) : fmt::format("{} chunk {}", side, number);
}

/// Which of all spans of its phase the one of memory event `at` is; empty where it is the only one.
std::string WhichOf(const Trace& trace, std::size_t at) {
  const Span& span = trace.spans[trace.memory[at].span];
  const std::string number = span.microbatch < 0 ? std::string() : Numbered(span.side, span.microbatch);
  const std::int64_t step = StepOf(trace, at);
  return step < 0         ? number
         : number.empty() ? fmt::format("step {}", step + 1)
                          : fmt::format("{}, step {}", number, step + 1);
}

}  // namespace

std::string PhaseLabel(const PhasePlace& place) {
  return PhaseLabel(place.phase, place.microbatch, place.step, place.side);
}

std::string PhaseLabel(const std::string& phase, std::int64_t microbatch, std::int64_t step, const std::string& side) {
  const std::string of = side.empty() ? phase : phase + " " + side;
  const std::string label = phase.empty() || microbatch < 0 ? of : fmt::format("{} {}", of, microbatch);
  return label.empty() || step < 0 ? label : fmt::format("{}, step {}", label, step + 1);
}

std::string PhaseText(const std::string& phase, std::int64_t microbatch, std::int64_t step, const std::string& side) {
  const std::string text =
      phase.empty() || microbatch < 0 ? phase : fmt::format("{} of {}", phase, Numbered(side, microbatch));
  return text.empty() || step < 0 ? text : fmt::format("{} of step {}", text, step + 1);
}

std::string InPhaseText(const std::string& phase, std::int64_t microbatch, std::int64_t step, const std::string& side) {
  return phase.empty() ? kBeforeStep : "in " + PhaseText(phase, microbatch, step, side);
}

std::string InPhaseText(const PhasePlace& place) {
  return InPhaseText(place.phase, place.microbatch, place.step, place.side);
}

Peak SummarisePeak(const Trace& trace) {
  Peak peak;
  const Highest highest = FindHighest(trace);
  if (highest.events == 0) {
    return peak;
  }
  const MemoryEvent& event = trace.memory[highest.events - 1];
  peak.allocated = highest.bytes;
  peak.at = event.issue;
  peak.step = StepOf(trace, highest.events - 1);
  if (event.span != kNoSpan) {
    peak.phase = trace.spans[event.span].phase;
    peak.microbatch = trace.spans[event.span].microbatch;
    peak.side = trace.spans[event.span].side;
  }
  peak.live = SummariseLive(trace, highest.events);
  for (const LiveBuffers& live : peak.live) {
    peak.by_category[live.category] += live.bytes;
  }
  return peak;
}

std::vector<LiveBuffers> SummariseEnd(const Trace& trace) { return SummariseLive(trace, trace.memory.size()); }

std::vector<PhasePeak> SummarisePhases(const Trace& trace) {
  std::vector<PhasePeak> phases;
  std::map<std::string_view, std::size_t> places;  // hostile traces have thousands of names
  Bytes total;
  for (std::size_t at = 0; at < trace.memory.size(); ++at) {
    const MemoryEvent& event = trace.memory[at];
    const Bytes before = total;
    const Bytes bytes = trace.tensors[event.tensor.index].bytes;
    total = event.alloc ? total + bytes : total - bytes;
    if (event.span == kNoSpan) {
      continue;
    }
    const std::string& name = trace.spans[event.span].phase;
    const auto [place, is_new] = places.try_emplace(name, phases.size());
    if (is_new) {
      phases.push_back({name, Bytes(-1), {}});
    }
    PhasePeak& phase = phases[place->second];
    if (const Bytes higher = std::max(before, total); higher > phase.allocated) {
      phase.allocated = higher;
      phase.where = WhichOf(trace, at);
    }
  }
  return phases;
}

}  // namespace tidemark
