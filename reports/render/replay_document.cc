// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "reports/render/document.h"
#include "reports/render/role_sections.h"
#include "reports/summarise/peak.h"

namespace tidemark {
namespace {

constexpr std::size_t kReplayRows = 10, kHolders = 2;

/// Pinned segments that a table shows as one row.
struct PinnedRow {
  std::int64_t count = 0;
  Bytes bytes, free;               ///< of all
  std::vector<std::string> cells;  ///< of one

  double FreeShare() const { return static_cast<double>(free.count()) / static_cast<double>(bytes.count()); }
};

std::string KindOf(const ReplayedSetting& setting) { return setting.allocator.substr(0, setting.allocator.find(' ')); }

const char* OwnText(const ReplayReport& report) {
  return report.tells_setting ? "as the trace has it" : "PyTorch's defaults";
}

std::string Verdict(const ReplayReport& report) {
  const ReplayedSetting& replayed = report.replayed;
  if (replayed.refused) {
    return fmt::format("OUT OF MEMORY with {}: a request of {} finds no room in {}", replayed.allocator,
                       Text(*replayed.refused), Text(report.capacity.value_or(Bytes(0))));
  }
  const std::string verdict = fmt::format("{} reserves {} at most", replayed.allocator, Text(replayed.reserved_peak));
  const auto own = std::ranges::find_if(report.others, &ReplayedSetting::own);
  if (own != report.others.end()) {
    const Bytes less = own->reserved_peak - replayed.reserved_peak;
    const std::string change = less == Bytes(0)  ? "as much as"
                               : less > Bytes(0) ? fmt::format("{} less than", Text(less))
                                                 : fmt::format("{} more than", Text(Bytes(0) - less));
    return own->refused ? fmt::format("{}; {}, {}, runs out of memory", verdict, own->allocator, OwnText(report))
                        : fmt::format("{}, {} {}, {}", verdict, change, own->allocator, OwnText(report));
  }
  const std::string kind = KindOf(replayed);
  const auto best = std::ranges::find_if(report.others, [&](const ReplayedSetting& other) {
    return !other.refused && KindOf(other) == kind && other.reserved_peak < replayed.reserved_peak;
  });
  return best == report.others.end()
             ? verdict
             : fmt::format("{}; {} would do with {}", verdict, best->allocator, Text(best->reserved_peak));
}

std::vector<Figure> Figures(const ReplayReport& report) {
  const ReplayedSetting& replayed = report.replayed;
  std::vector<Figure> figures = {
      {"tensors", Text(report.tensors_peak), AllDigits(report.tensors_peak)},
      {"allocated", Text(replayed.allocator_peak), "as torch max_memory_allocated counts, rounding included"},
      {"reserved", Text(replayed.reserved_peak),
       fmt::format("{} in {}", AllDigits(replayed.reserved_peak),
                   report.at.phase.empty() ? "no phase" : PhaseLabel(report.at))},
      {"unused there", Text(replayed.unused),
       fmt::format("{} of what is reserved at that instant; {} of it in empty segments",
                   Percent(replayed.fragmentation()), Text(replayed.releasable))}};
  if (report.recorded_reserved_peak) {
    figures.push_back(
        {"as recorded", Text(*report.recorded_reserved_peak), "reserved by the allocator of the trace itself"});
  }
  if (report.capacity) {
    figures.push_back(
        {"cache flushes", Grouped(replayed.cache_flushes), fmt::format("on a device of {}", Text(*report.capacity))});
  }
  return figures;
}

std::string HoldersText(const HeldSegment& segment) {
  std::string text;
  for (std::size_t i = 0; i < std::min(segment.holders.size(), kHolders); ++i) {
    const SegmentHolder& holder = segment.holders[i];
    const std::string many = holder.count > 1 ? fmt::format("{} x ", Grouped(holder.count)) : "";
    text += fmt::format("{}{}{} ({})", i == 0 ? "" : ", ", many, holder.name, Text(holder.bytes));
  }
  const std::int64_t more = std::ssize(segment.holders) - static_cast<std::int64_t>(kHolders);
  return more > 0 ? fmt::format("{}, {} more", text, Grouped(more)) : text;
}

/// Segments that read alike are one row.
std::vector<PinnedRow> PinnedRows(const ReplayReport& report) {
  std::vector<PinnedRow> rows;
  std::map<std::vector<std::string>, std::size_t> places;
  for (const HeldSegment& segment : report.pinned) {
    std::vector<std::string> cells = {Text(segment.bytes), Text(segment.free), segment.stream, HoldersText(segment),
                                      segment.holders.front().since};
    const auto [same, is_new] = places.try_emplace(cells, rows.size());
    if (is_new) {
      rows.push_back({1, segment.bytes, segment.free, std::move(cells)});
    } else {
      PinnedRow& row = rows[same->second];
      ++row.count;
      row.bytes += segment.bytes;
      row.free += segment.free;
    }
  }
  return rows;
}

Section PinnedSection(const ReplayReport& report) {
  Section section{"Free memory that cannot go back", "segments by what lies in them at that instant", {}, {}};
  section.table.columns = {{"", true, false},        {"segment", true, false}, {"free in each", true, false},
                           {"stream", false, false}, {"held by", false, true}, {"since", false, false}};
  const std::vector<PinnedRow> rows = PinnedRows(report);
  for (std::size_t i = 0; i < std::min(rows.size(), kReplayRows); ++i) {
    ReportRow row{{rows[i].count > 1 ? fmt::format("{} x", Grouped(rows[i].count)) : ""}, rows[i].FreeShare()};
    row.cells.insert(row.cells.end(), rows[i].cells.begin(), rows[i].cells.end());
    section.table.rows.push_back(std::move(row));
  }
  if (rows.size() > kReplayRows) {
    std::int64_t count = 0;
    Bytes free;
    for (std::size_t i = kReplayRows; i < rows.size(); ++i) {
      count += rows[i].count;
      free += rows[i].free;
    }
    section.remarks.push_back({"not shown", fmt::format("{} more segments with {} free", Grouped(count), Text(free)),
                               "--format json lists all", Tone::neutral});
  }
  return section;
}

/// What a recording reserved and its own setting does not: the replay cannot know it.
std::optional<Section> RecordingSection(const ReplayReport& report) {
  constexpr std::int64_t kFew = 50;  // 2 % are a segment or two
  if (!report.recorded_reserved_peak || !report.replayed.own || report.capacity) {
    return std::nullopt;
  }
  const Bytes recorded = *report.recorded_reserved_peak;
  const Bytes missed = recorded - report.replayed.reserved_peak;
  if (missed < recorded / kFew && Bytes(0) - missed < recorded / kFew) {
    return std::nullopt;
  }
  Section section{"Against the recording", "", {}, {}};
  section.remarks.push_back(
      {fmt::format("{} {}", Text(missed < Bytes(0) ? Bytes(0) - missed : missed), missed < Bytes(0) ? "more" : "less"),
       fmt::format(
           "the trace's own allocator reserved {}: the replay begins without a cache, and knows neither what was "
           "freed before the recording nor settings that the trace does not tell",
           Text(recorded)),
       "give the settings of the run (PYTORCH_CUDA_ALLOC_CONF) with --set; differences between settings hold all the "
       "same",
       Tone::warning});
  return section;
}

Section OthersSection(const ReplayReport& report) {
  Section section{
      "The same allocations under other settings", "behind it least reserved first; unused at that instant", {}, {}};
  section.table.wide = true;
  section.table.columns = {{"allocator", false, false}, {"allocated", true, false},     {"reserved", true, false},
                           {"unused", true, false},     {"fragmentation", true, false}, {"", false, false}};
  const auto add = [&](const ReplayedSetting& setting, const char* which) {
    const std::string outcome = setting.refused             ? fmt::format("no room for {}", Text(*setting.refused))
                                : setting.cache_flushes > 0 ? fmt::format("{} flushes", Grouped(setting.cache_flushes))
                                                            : "";
    section.table.rows.push_back({{setting.allocator, Text(setting.allocator_peak), Text(setting.reserved_peak),
                                   Text(setting.unused), Percent(setting.fragmentation()),
                                   fmt::format("{}{}{}", which, *which != 0 && !outcome.empty() ? ", " : "", outcome)},
                                  std::nullopt});
  };
  add(report.replayed, report.replayed.own ? OwnText(report) : "asked for");
  for (const ReplayedSetting& setting : report.others) {
    add(setting, setting.own ? OwnText(report) : "");
  }
  return section;
}

}  // namespace

Document MakeDocument(const ReplayReport& report) {
  const Tone tone = report.replayed.refused ? Tone::bad : Tone::neutral;
  Document document{report.title, Verdict(report), tone, Figures(report), {}, {}};
  if (std::optional<Section> recording = RecordingSection(report)) {
    document.sections.push_back(std::move(*recording));
  }
  if (!report.others.empty()) {
    document.sections.push_back(OthersSection(report));
  }
  if (!report.pinned.empty()) {
    document.sections.push_back(PinnedSection(report));
  }
  return document;
}

}  // namespace tidemark
