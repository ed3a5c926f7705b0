// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/pareto_front.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace tidemark {
namespace {

double Signed(const SweepMetric& metric, const PricedRow& row) {
  return metric.more_is_better ? -metric.of(row) : metric.of(row);
}

}  // namespace

const std::vector<SweepMetric>& SweepMetrics() {
  static const std::vector<SweepMetric> kMetrics = {
      {"allocated_bytes", false, [](const PricedRow& row) { return static_cast<double>(row.allocated.count()); }, true},
      {"device_high_bytes", false, [](const PricedRow& row) { return static_cast<double>(row.device.high.count()); },
       true},
      {"host_bytes", false, [](const PricedRow& row) { return static_cast<double>(row.host.count()); }, true},
      {"step_ns", false, [](const PricedRow& row) { return static_cast<double>(row.time.step.count()); }},
      {"exposed_communication_ns", false,
       [](const PricedRow& row) { return static_cast<double>(row.time.exposed_communication.count()); }},
      {"bubble_ns", false, [](const PricedRow& row) { return static_cast<double>(row.time.bubble.count()); }},
      {"tokens_per_s_per_gpu", true, [](const PricedRow& row) { return row.tokens_per_s_per_gpu; }},
      {"mfu", true, [](const PricedRow& row) { return row.mfu; }}};
  return kMetrics;
}

std::vector<std::string> SweepMetricNames() {
  std::vector<std::string> names;
  for (const SweepMetric& metric : SweepMetrics()) {
    names.emplace_back(metric.name);
  }
  return names;
}

Result<SweepMetric> FindSweepMetric(std::string_view name) {
  const auto found = std::ranges::find(SweepMetrics(), name, &SweepMetric::name);
  if (found != SweepMetrics().end()) {
    return *found;
  }
  const std::vector<std::string> names = SweepMetricNames();
  const std::string nearest = Nearest(std::string(name), names);
  return BadInput(
      fmt::format("'{}' is no metric of a row", name),
      nearest.empty() ? fmt::format("known: {}", fmt::join(names, ", ")) : fmt::format("did you mean {}?", nearest));
}

void ParetoFront::Add(const PricedRow& row) {
  const double x = Signed(x_, row), y = Signed(y_, row);
  auto at = rows_.lower_bound(x);
  if (at != rows_.end() && at->first == x && at->second.first == y) {
    at->second.second.push_back(row);
    return;
  }
  // Whoever is no worse in x: the one with the largest x of them has the best y.
  auto no_worse = rows_.upper_bound(x);
  if (no_worse != rows_.begin() && std::prev(no_worse)->second.first <= y) {
    return;
  }
  while (at != rows_.end() && at->second.first >= y) {
    at = rows_.erase(at);
  }
  rows_[x] = {y, {row}};
}

std::vector<PricedRow> ParetoFront::Rows() const {
  std::vector<PricedRow> rows;
  for (const auto& [x, equal] : rows_) {
    const std::size_t first = rows.size();
    rows.insert(rows.end(), equal.second.begin(), equal.second.end());
    std::sort(rows.begin() + static_cast<std::ptrdiff_t>(first), rows.end(),
              [](const PricedRow& a, const PricedRow& b) { return a.combination < b.combination; });
  }
  return rows;
}

bool ParetoFront::Beats(const PricedRow& row, Nanos least) const {
  const bool step_is_x = x_.name == "step_ns";
  const SweepMetric& memory = step_is_x ? y_ : x_;
  if ((!step_is_x && y_.name != "step_ns") || !memory.of_memory) {
    return false;
  }
  // Along the front one metric rises as the other falls: of the rows that are good enough in x the last is best in y.
  auto at = step_is_x ? rows_.lower_bound(static_cast<double>(least.count())) : rows_.upper_bound(memory.of(row));
  while (at != rows_.begin()) {
    const PricedRow& known = (--at)->second.second.front();
    if (known.time.step >= least || memory.of(known) > memory.of(row)) {
      return false;
    }
    if ((known.fits || !row.fits) && known.allocated <= row.allocated) {
      return true;
    }
  }
  return false;
}

}  // namespace tidemark
