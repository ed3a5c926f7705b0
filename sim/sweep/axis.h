// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tidemark {

/// One key of a job that a sweep varies.
struct SweepAxis {
  std::string key;                  ///< dotted: "layout.tp"
  std::vector<std::string> values;  ///< as a job's YAML says them; at least one, no two alike

  friend bool operator==(const SweepAxis&, const SweepAxis&) = default;
};

/// Its values as whole numbers; nothing where one is none.
std::optional<std::vector<std::int64_t>> NumbersOf(const SweepAxis& axis);

/// Reads "key=value,value,...". A value is a YAML scalar, or a range of whole numbers with both its ends: "1..8",
/// "8..64:+8" in steps of 8, "1..64:x2" in powers of two. Refuses a key that no job has (naming the nearest), lists and
/// sections, a value that is given twice, a range that runs backwards or stands still, and more than 1,000,000 values.
Result<SweepAxis> ParseSweepAxis(std::string_view text);

}  // namespace tidemark
