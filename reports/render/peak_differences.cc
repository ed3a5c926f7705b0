// SPDX-License-Identifier: Apache-2.0
#include "reports/render/peak_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace tidemark {
namespace {

constexpr std::size_t kTensorRows = 12;

std::string SignedCount(Bytes bytes) { return (bytes > Bytes(0) ? "+" : "") + Grouped(bytes.count()); }

std::vector<ReportColumn> ColumnsOf(const TraceReport& report, const std::string& first, bool numbers) {
  std::vector<ReportColumn> columns = {{first, false, true}};
  for (const TraceSummary& trace : report.traces) {
    columns.push_back({trace.label, numbers, true});
  }
  return columns;
}

ReportRow DifferenceRow(const std::string& name, const std::string& category, Bytes before, Bytes after) {
  return {{name, category, Text(before), Text(after), Signed(after - before), SignedCount(after - before)},
          std::nullopt};
}

}  // namespace

Section CategoriesSection(const TraceReport& report) {
  Section section{"By category at the peaks", "", {}, {}};
  section.table.columns = ColumnsOf(report, "category", true);
  std::vector<std::pair<Bytes, ReportRow>> rows;
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    Bytes most;
    ReportRow row{{std::string(Name(category))}, std::nullopt};
    for (const TraceSummary& trace : report.traces) {
      const Bytes bytes = trace.role.peak.by_category[category];
      most = std::max(most, bytes);
      row.cells.push_back(bytes == Bytes(0) ? "-" : Text(bytes));
    }
    if (most > Bytes(0)) {
      rows.emplace_back(most, std::move(row));
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [most, row] : rows) {
    section.table.rows.push_back(std::move(row));
  }
  ReportRow total{{"tensors"}, std::nullopt};
  for (const TraceSummary& trace : report.traces) {
    total.cells.push_back(Text(trace.role.peak.allocated));
  }
  section.table.rows.push_back(std::move(total));
  return section;
}

Section DifferenceSection(const TraceReport& report, const PeakDifference& difference) {
  const std::string& before = report.traces.front().label;
  const std::string& after = report.traces[difference.other].label;
  Section section{fmt::format("From {} to {}, tensor by tensor", before, after),
                  "alive at each peak, without indices of layer and microbatch",
                  {},
                  {}};
  section.table.columns = {{"tensor", false, true}, {"category", false, false},  {before, true, true},
                           {after, true, true},     {"difference", true, false}, {"in bytes", true, false}};
  std::size_t shown = 0;
  std::array<TensorDifference, 2> rest;  // smaller differences, and none
  std::array<std::int64_t, 2> counts{};
  for (const TensorDifference& tensor : difference.tensors) {
    const bool alike = tensor.difference() == Bytes(0);
    if (!alike && shown < kTensorRows) {
      section.table.rows.push_back(
          DifferenceRow(tensor.name, std::string(Name(tensor.category)), tensor.before, tensor.after));
      ++shown;
      continue;
    }
    rest.at(alike ? 1 : 0).before += tensor.before;
    rest.at(alike ? 1 : 0).after += tensor.after;
    ++counts.at(alike ? 1 : 0);
  }
  for (const std::size_t i : {0U, 1U}) {
    if (counts.at(i) > 0) {
      const std::string name = i == 0 ? fmt::format("{} smaller differences", Grouped(counts[0]))
                                      : fmt::format("{} alike in both", Grouped(counts[1]));
      section.table.rows.push_back(DifferenceRow(name, "", rest.at(i).before, rest.at(i).after));
    }
  }
  section.table.rows.push_back(DifferenceRow("all tensors", "", difference.before, difference.after));
  return section;
}

Section JobsSection(const TraceReport& report) {
  Section section{"Where the jobs differ", "everything else is the same", {}, {}};
  section.table.columns = ColumnsOf(report, "key", false);
  for (const JobDifference& job : report.jobs) {
    std::vector<std::string> cells = {job.key};
    cells.insert(cells.end(), job.values.begin(), job.values.end());
    section.table.rows.push_back({std::move(cells), std::nullopt});
  }
  return section;
}

}  // namespace tidemark
