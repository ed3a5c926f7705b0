// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/expression.h"
#include "base/result.h"
#include "models/job/job.h"
#include "sim/sweep/space.h"

namespace tidemark {

/// A user's condition on the combinations of a space (`--where`): an expression over the varied keys whose values are
/// whole numbers, the other sizes of the job ("micro_batch_size", "layout.tp"), and `ranks`.
class SweepCondition {
 public:
  /// `base`: the job of which the space varies some keys. `global_batch`: decides accumulation_steps. Refuses sizes
  /// whose values are not written in digits.
  static Result<SweepCondition> Parse(const std::string& text, const SweepSpace& space, const Job& base,
                                      std::optional<std::int64_t> global_batch);

  /// Refuses what cannot be evaluated (a division by zero).
  Result<bool> Holds(const SweepSpace& space, std::int64_t combination) const;

 private:
  SweepCondition(Expression expression, std::string text)
      : expression_(std::move(expression)), text_(std::move(text)) {}

  /// Where a name's value comes from: an axis, by the numbers of its values; or the job.
  struct Source {
    std::size_t axis = 0;
    std::vector<std::int64_t> values;  ///< of the axis; empty: `fixed`
    std::int64_t fixed = 0;
  };

  Expression expression_;
  std::string text_;
  std::vector<Source> sources_;  ///< in the order of the names
  std::optional<std::int64_t> global_batch_;
};

}  // namespace tidemark
