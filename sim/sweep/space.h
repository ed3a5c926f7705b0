// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sim/sweep/axis.h"

namespace tidemark {

/// All combinations of the values of some axes, counted from 0: the last axis changes fastest.
class SweepSpace {
 public:
  /// Refuses no axes, a key that is varied twice, and more combinations than 10^18.
  static Result<SweepSpace> Of(std::vector<SweepAxis> axes);

  const std::vector<SweepAxis>& axes() const { return axes_; }
  std::int64_t size() const { return size_; }
  /// Which value of each axis a combination has.
  void At(std::int64_t combination, std::span<std::size_t> values) const;

 private:
  SweepSpace(std::vector<SweepAxis> axes, std::int64_t size) : axes_(std::move(axes)), size_(size) {}

  std::vector<SweepAxis> axes_;
  std::int64_t size_ = 0;
};

}  // namespace tidemark
