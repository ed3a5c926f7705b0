// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/job/job.h"
#include "reports/summarise/sweep.h"
#include "sim/sweep/priced_row.h"
#include "sim/sweep/space.h"

namespace tidemark {

/// What tells the combinations of a sweep apart: the varied keys, and accumulation_steps where a global batch decides
/// it.
class SweepValues {
 public:
  /// `base`: the job of which the space varies some keys.
  SweepValues(const SweepSpace& space, std::optional<std::int64_t> global_batch, const Job& base);

  const std::vector<std::string>& keys() const { return keys_; }
  /// Parallel to keys().
  std::vector<std::string> Values(std::int64_t combination) const;
  SweepRow Row(const PricedRow& row, bool on_front) const;

 private:
  /// A number that an axis varies, or that the job fixes; 0 where the axis says no number.
  std::int64_t NumberOf(const std::string& key, std::int64_t fixed, const std::vector<std::size_t>& at) const;

  const SweepSpace& space_;
  std::optional<std::int64_t> global_batch_;
  std::int64_t micro_batch_size_, dp_;
  std::vector<std::string> keys_;
};

}  // namespace tidemark
