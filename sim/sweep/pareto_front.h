// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "sim/sweep/priced_row.h"

namespace tidemark {

/// A number of a row that rows are compared by.
struct SweepMetric {
  std::string_view name;  ///< as the row's JSON calls it
  bool more_is_better;
  double (*of)(const PricedRow& row);
  bool of_memory = false;  ///< no time has a part in it
};

/// All of them.
const std::vector<SweepMetric>& SweepMetrics();
std::vector<std::string> SweepMetricNames();
/// Refuses an unknown name with the nearest known one.
Result<SweepMetric> FindSweepMetric(std::string_view name);

/// Rows that no other row beats in one of two metrics without losing in the other. Equal ones are all on the front.
class ParetoFront {
 public:
  ParetoFront(SweepMetric x, SweepMetric y) : x_(x), y_(y) {}

  void Add(const PricedRow& row);
  /// By x, the best first; equal ones in the order of the space.
  std::vector<PricedRow> Rows() const;

  /// Whether a row of which all is known but its times, and that its step takes `least` at least, is beaten for
  /// certain: by one that is better in step and no worse in its peak and the other metric, which no time has a part in,
  /// and that fits if it does. False where the metrics are others.
  bool Beats(const PricedRow& row, Nanos least) const;

 private:
  SweepMetric x_, y_;
  std::map<double, std::pair<double, std::vector<PricedRow>>> rows_;  ///< by x (less is better): y, and who has both
};

}  // namespace tidemark
