// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/sweep/priced_row.h"
#include "sim/sweep/pricer.h"

namespace tidemark {

/// A number of a row that rows are compared by.
struct SweepMetric {
  std::string_view name;  ///< as the row's JSON calls it
  bool more_is_better;
  double (*of)(const PricedRow& row);
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

 private:
  SweepMetric x_, y_;
  std::map<double, std::pair<double, std::vector<PricedRow>>> rows_;  ///< by x (less is better): y, and who has both
};

/// What a sweep comes to, in memory that does not grow with its rows.
class SweepSummary {
 public:
  /// `top`: so many of the first rows (ComesBefore) are kept.
  SweepSummary(std::size_t top, SweepMetric x, SweepMetric y) : top_(top), front_(x, y) {}

  void Add(const PricedRow& row);
  void AddRefused(const PricedCombinations& priced);
  void Add(const PricedCombinations& priced);

  std::int64_t evaluated() const { return evaluated_; }
  std::int64_t feasible() const { return feasible_; }
  std::int64_t pruned() const { return pruned_; }
  std::int64_t refused() const { return refused_; }
  const std::map<std::string, std::int64_t>& reasons() const { return reasons_; }
  /// In order.
  std::vector<PricedRow> Top() const;
  /// The first of all rows, and that with the lowest peak of tensors; nothing: there are none.
  const std::optional<PricedRow>& first() const { return first_; }
  const std::optional<PricedRow>& lowest() const { return lowest_; }
  const ParetoFront& front() const { return front_; }

 private:
  std::size_t top_;
  std::vector<PricedRow> best_;  ///< a heap, the last of them in front
  ParetoFront front_;
  std::int64_t evaluated_ = 0, feasible_ = 0, pruned_ = 0, refused_ = 0;
  std::map<std::string, std::int64_t> reasons_;  ///< the first so many, and the sum of all others
  std::optional<PricedRow> first_, lowest_;
};

}  // namespace tidemark
