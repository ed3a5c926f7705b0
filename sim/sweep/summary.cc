// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostReasons = 1000;

double Signed(const SweepMetric& metric, const PricedRow& row) {
  return metric.more_is_better ? -metric.of(row) : metric.of(row);
}

}  // namespace

const std::vector<SweepMetric>& SweepMetrics() {
  static const std::vector<SweepMetric> kMetrics = {
      {"allocated_bytes", false, [](const PricedRow& row) { return static_cast<double>(row.allocated.count()); }},
      {"device_high_bytes", false, [](const PricedRow& row) { return static_cast<double>(row.device.high.count()); }},
      {"host_bytes", false, [](const PricedRow& row) { return static_cast<double>(row.host.count()); }},
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

void SweepSummary::Add(const PricedRow& row) {
  ++evaluated_;
  feasible_ += row.fits ? 1 : 0;
  front_.Add(row);
  if (!first_ || ComesBefore(row, *first_)) {
    first_ = row;
  }
  const auto lower = [](const PricedRow& a, const PricedRow& b) {
    return a.allocated != b.allocated ? a.allocated < b.allocated : ComesBefore(a, b);
  };
  if (!lowest_ || lower(row, *lowest_)) {
    lowest_ = row;
  }
  if (best_.size() < top_) {
    best_.push_back(row);
    std::ranges::push_heap(best_, ComesBefore);
  } else if (top_ > 0 && ComesBefore(row, best_.front())) {
    std::ranges::pop_heap(best_, ComesBefore);
    best_.back() = row;
    std::ranges::push_heap(best_, ComesBefore);
  }
}

void SweepSummary::AddRefused(const PricedCombinations& priced) {
  pruned_ += priced.pruned;
  refused_ += std::ssize(priced.refused);
  for (const PricedCombinations::Refused& refused : priced.refused) {
    const std::string& reason = priced.reasons[refused.reason];
    ++reasons_[reasons_.size() < kMostReasons || reasons_.contains(reason) ? reason : "other reasons"];
  }
}

void SweepSummary::Add(const PricedCombinations& priced) {
  for (const PricedRow& row : priced.rows) {
    Add(row);
  }
  AddRefused(priced);
}

std::vector<PricedRow> SweepSummary::Top() const {
  std::vector<PricedRow> rows = best_;
  std::ranges::sort(rows, ComesBefore);
  return rows;
}

}  // namespace tidemark
