// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/instant_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "reports/summarise/peak.h"
#include "traces/place.h"

namespace tidemark {

InstantNames::InstantNames(const Trace& trace) : trace_(trace) {
  const auto phased =
      std::ranges::find_if(trace.memory, [](const MemoryEvent& event) { return event.span != kNoSpan; });
  first_phased_ = static_cast<std::size_t>(phased - trace.memory.begin());
}

std::string InstantNames::Born(std::size_t alloc) const {
  std::string phase = PhaseLabel(PlaceOf(trace_, alloc));
  if (!phase.empty()) {
    return phase;
  }
  if (has_phases()) {
    return alloc < first_phased_ ? OfStep("before") : At(alloc);
  }
  return trace_.memory[alloc].issue == trace_.memory.front().issue ? "the beginning" : At(alloc);
}

std::string InstantNames::Died(std::size_t free) const {
  std::string phase = PhaseLabel(PlaceOf(trace_, free));
  return phase.empty() ? At(free) : phase;
}

std::string InstantNames::Never() const { return has_phases() ? OfStep("after") : "the end"; }

std::string InstantNames::At(std::size_t event) const { return fmt::format("at {}", Text(trace_.memory[event].issue)); }

std::string InstantNames::OfStep(const char* where) const {
  return fmt::format("{} the step{}", where, trace_.steps.size() > 1 ? "s" : "");
}

}  // namespace tidemark
