// SPDX-License-Identifier: Apache-2.0
#include "reports/render/role_sections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tidemark {
namespace {

constexpr std::size_t kLiveRows = 12;

}  // namespace

double Share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

std::string Percent(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string AllDigits(Bytes bytes) { return fmt::format("{} bytes", Grouped(bytes.count())); }

std::string BandText(const Band& band) { return fmt::format("{} to {}", Text(band.low), Text(band.high)); }

Section BudgetSection(const RoleReport& role) {
  Section section{"From tensors to the device",
                  fmt::format("{}; the highest of each, which need not be at one instant", role.role),
                  {},
                  {}};
  section.table.columns = {
      {"what", false, false}, {"adds", true, false}, {"makes", true, false}, {"in bytes", true, false}};
  Bytes sum;
  const auto reach = [&](const char* what, const std::optional<Bytes>& total) {
    if (total) {
      section.table.rows.push_back({{what, Text(*total - sum), Text(*total), Grouped(total->count())}, std::nullopt});
      sum = *total;
    }
  };
  reach("tensors", role.peak.allocated);
  reach("rounded up by the allocator", role.allocator_bytes);
  reach("reserved and not in use", role.reserved);
  if (role.device.high > Bytes(0)) {
    reach("context, communicators, workspaces", role.device.expected);
    section.remarks.push_back(
        {"device", fmt::format("{} of what nvidia-smi would show", BandText(role.device)), "", Tone::neutral});
  }
  return section;
}

Section CategorySection(const RoleReport& role) {
  const Peak& peak = role.peak;
  const std::string phase = PhaseText(peak.phase, peak.microbatch, peak.step, peak.side);
  Section section{
      "Peak memory by category", fmt::format("{}{}{}", role.role, phase.empty() ? "" : ", reached in ", phase), {}, {}};
  section.table.columns = {{"category", false, false}, {"bytes", true, false}, {"share", true, false}};
  std::vector<std::pair<Bytes, Category>> parts;
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (peak.by_category[category] != Bytes(0)) {
      parts.emplace_back(peak.by_category[category], category);
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [bytes, category] : parts) {
    const double share = Share(bytes.count(), peak.allocated.count());
    section.table.rows.push_back({{std::string(Name(category)), Text(bytes), Percent(share)}, share});
  }
  return section;
}

Section LiveSection(const RoleReport& role) {
  const Peak& peak = role.peak;
  Section section{"Alive at the peak", "largest first; the members of a family together", {}, {}};
  section.table.columns = {{"buffer", false, true}, {"category", false, false}, {"count", true, false},
                           {"bytes", true, false},  {"since", false, true},     {"until", false, true}};
  for (const LiveBuffers& live : peak.live) {
    if (section.table.rows.size() == kLiveRows) {
      break;
    }
    section.table.rows.push_back({{live.name, std::string(Name(live.category)), Grouped(live.count), Text(live.bytes),
                                   live.since_phase, live.until_phase},
                                  std::nullopt});
  }
  if (peak.live.size() > kLiveRows) {
    Bytes rest;
    for (std::size_t i = kLiveRows; i < peak.live.size(); ++i) {
      rest += peak.live[i].bytes;
    }
    section.table.rows.push_back(
        {{fmt::format("{} smaller families", peak.live.size() - kLiveRows), "", "", Text(rest), "", ""}, std::nullopt});
  }
  return section;
}

Section PhasesSection(const RoleReport& role) {
  Section section{"Highest point of each phase", role.role, {}, {}};
  section.table.columns = {
      {"phase", false, false}, {"tensors", true, false}, {"of the peak", true, false}, {"first in", false, true}};
  for (const PhasePeak& phase : role.phases) {
    const double share = Share(phase.allocated.count(), role.peak.allocated.count());
    section.table.rows.push_back({{phase.phase, Text(phase.allocated), Percent(share), phase.where}, share});
  }
  return section;
}

void AddAssumptions(Section& section, const std::string& before, const Trace& trace) {
  const auto add = [&](const char* label, const std::vector<std::string>& entries, Tone tone) {
    if (!entries.empty()) {
      section.remarks.push_back({before + label, fmt::format("{}", fmt::join(entries, "; ")), "", tone});
    }
  };
  add("assumed", trace.assumed, Tone::warning);
  add("not modelled", trace.not_modelled, Tone::neutral);
}

}  // namespace tidemark
