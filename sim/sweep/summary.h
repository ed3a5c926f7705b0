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
#include "sim/sweep/pareto_front.h"
#include "sim/sweep/priced_row.h"
#include "sim/sweep/pricer.h"

namespace tidemark {

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
  /// Whether the steps of all that were priced are of as many tokens.
  bool same_tokens() const { return same_tokens_; }
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
  bool same_tokens_ = true;
};

}  // namespace tidemark
