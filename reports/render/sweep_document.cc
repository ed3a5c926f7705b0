// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "reports/render/document.h"
#include "reports/render/role_sections.h"

namespace tidemark {
namespace {

constexpr std::size_t kSweepRows = 200;
constexpr std::size_t kRefusals = 12;

std::string LastPart(const std::string& key) { return key.substr(key.rfind('.') + 1); }

/// "tp" for "layout.tp", unless another key ends alike.
std::string ShortKey(const std::string& key, const std::vector<std::string>& keys) {
  const std::string last = LastPart(key);
  const auto alike =
      std::count_if(keys.begin(), keys.end(), [&](const std::string& other) { return LastPart(other) == last; });
  return alike > 1 ? key : last;
}

/// "8, ddp-last": in the order of the columns.
std::string Values(const SweepRow& row) { return fmt::format("{}", fmt::join(row.values, ", ")); }

/// Of the one machine that all have.
std::string MemoryText(const SweepReport& report) {
  return (report.shares_device ? "what allocator.memory_fraction leaves of " : "") + Text(*report.device_memory);
}

std::string Verdict(const SweepReport& report) {
  const std::string counts = fmt::format("{}: {} priced, {} pruned, {} refused", Counted(report.size, "combination"),
                                         Grouped(report.evaluated), Grouped(report.pruned), Grouped(report.refused));
  const std::string where = report.device_memory ? "in " + MemoryText(report) : "into its device";
  const std::string fits =
      report.feasible == 0 ? "none fits " + where : fmt::format("{} fit {}", Grouped(report.feasible), where);
  return fmt::format("{}; {}{}", counts, fits, report.complete ? "" : "; interrupted before the rest was looked at");
}

std::string MfuText(const SweepRow& row) { return row.mfu ? Percent(*row.mfu) : "-"; }

std::vector<Figure> Figures(const SweepReport& report) {
  std::vector<Figure> figures;
  figures.push_back({"fit", Grouped(report.feasible),
                     report.device_memory ? fmt::format("in {} of {}", MemoryText(report), report.machine)
                                          : "each on its own machine"});
  if (report.first && report.first->fits) {
    figures.push_back({"fastest that fits", Text(report.first->time.step), Values(*report.first)});
  }
  if (report.lowest) {
    figures.push_back({"lowest peak", Text(report.lowest->allocated), Values(*report.lowest)});
  }
  const double rate =
      report.seconds > 0 ? static_cast<double>(report.evaluated + report.pruned + report.refused) / report.seconds : 0;
  figures.push_back({"time taken", fmt::format("{:.2f} s", report.seconds),
                     fmt::format("{} combinations a second", Grouped(std::llround(rate)))});
  return figures;
}

ReportTable RowsTable(const SweepReport& report, bool with_reserved) {
  ReportTable table;
  table.wide = true;
  for (const std::string& key : report.keys) {
    table.columns.push_back({ShortKey(key, report.keys), false, true});
  }
  table.columns.push_back({"peak", true, false});
  if (with_reserved) {
    table.columns.push_back({"reserved", true, false});
  }
  for (const char* title : {"device", "step", "tok/s/GPU", "MFU"}) {
    table.columns.push_back({title, true, false});
  }
  table.columns.push_back({"fits", false, false});
  table.columns.push_back({"front", false, false});
  for (const SweepRow& row : report.rows) {
    if (table.rows.size() == kSweepRows) {
      break;
    }
    std::vector<std::string> cells = row.values;
    cells.push_back(Text(row.allocated));
    if (with_reserved) {
      cells.push_back(row.reserved ? Text(*row.reserved) : "-");
    }
    cells.push_back(Text(row.device.high));
    cells.push_back(Text(row.time.step));
    cells.push_back(Grouped(std::llround(row.tokens_per_s_per_gpu)));
    cells.push_back(MfuText(row));
    cells.emplace_back(row.fits ? "yes" : "no");
    cells.emplace_back(row.pareto ? "*" : "");
    table.rows.push_back({std::move(cells), std::nullopt});
  }
  return table;
}

Section RowsSection(const SweepReport& report) {
  Section section{"Combinations",
                  fmt::format("those that fit first, then by step; * on the front of {}, {}", report.x, report.y),
                  {},
                  {}};
  const bool with_reserved =
      std::any_of(report.rows.begin(), report.rows.end(), [](const SweepRow& row) { return row.reserved.has_value(); });
  section.table = RowsTable(report, with_reserved);
  if (!report.same_batch) {
    section.remarks.push_back({"batches",
                               "steps are of different numbers of tokens: the shortest one need not be the "
                               "fastest training; tok/s/GPU compares them",
                               "--global-batch keeps the sequences of a step; --pareto "
                               "allocated_bytes,tokens_per_s_per_gpu asks for speed",
                               Tone::neutral});
  }
  if (std::ranges::any_of(report.keys, [](const std::string& key) { return key.starts_with("allocator."); })) {
    section.remarks.push_back({"allocator",
                               "a sweep sums tensors and simulates no allocator: allocator.* changes nothing here but, "
                               "by memory_fraction, what fits",
                               "tidemark predict JOB --set allocator.KEY=VALUE simulates it, tidemark replay compares "
                               "several",
                               Tone::neutral});
  }
  const auto shown = static_cast<std::int64_t>(section.table.rows.size());
  const std::int64_t more = static_cast<std::int64_t>(report.rows.size()) - shown + report.rows_left_out;
  if (more > 0) {
    section.remarks.push_back({"not shown", fmt::format("{} more that were priced", Grouped(more)), "", Tone::neutral});
  }
  return section;
}

Section RefusalsSection(const SweepReport& report) {
  Section section{"Refused", "combinations that were not priced, by the reason", {}, {}};
  section.table.columns = {{"count", true, false}, {"reason", false, true, true}};
  std::int64_t rest = 0;
  for (const SweepRefusal& refusal : report.refusals) {
    if (section.table.rows.size() < kRefusals) {
      section.table.rows.push_back({{Grouped(refusal.count), refusal.reason}, std::nullopt});
    } else {
      rest += refusal.count;
    }
  }
  if (rest > 0) {
    section.table.rows.push_back({{Grouped(rest), "for other reasons"}, std::nullopt});
  }
  return section;
}

}  // namespace

Document SweepFrame(const SweepReport& report) {
  Document document{
      report.title, Verdict(report), report.feasible > 0 ? Tone::good : Tone::bad, Figures(report), {}, {}};
  if (!report.refusals.empty()) {
    document.sections.push_back(RefusalsSection(report));
  }
  return document;
}

Document MakeDocument(const SweepReport& report) {
  Document document = SweepFrame(report);
  if (!report.rows.empty()) {
    document.sections.insert(document.sections.begin(), RowsSection(report));
  }
  return document;
}

}  // namespace tidemark
