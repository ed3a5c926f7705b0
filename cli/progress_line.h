// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tidemark {

/// How far long work is: one line on stderr that is written anew, where a terminal is there to see it and the work has
/// taken a second. It goes when the work is done.
class ProgressLine {
 public:
  /// `unit`: "rows".
  ProgressLine(std::int64_t all, std::string unit);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Done before the work began, which says nothing of its rate.
  void Had(std::int64_t done) { done_ = had_ = done; }
  void Add(std::int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t all_, done_ = 0, had_ = 0;
  std::string unit_;
  bool seen_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace tidemark
