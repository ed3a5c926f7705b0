// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"

namespace tidemark {

ProgressLine::ProgressLine(std::int64_t all, std::string unit)
    : all_(all), unit_(std::move(unit)), seen_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (drawn_) {
    std::fputs("\r\033[K", stderr);
  }
}

void ProgressLine::Add(std::int64_t done) {
  done_ += done;
  const Clock::time_point now = Clock::now();
  if (!seen_ || now - start_ < std::chrono::seconds(1) || now - last_ < std::chrono::milliseconds(200)) {
    return;
  }
  last_ = now;
  drawn_ = true;
  const double rate = static_cast<double>(done_ - had_) / std::chrono::duration<double>(now - start_).count();
  const double left = static_cast<double>(all_ - done_) / std::max(rate, 1e-9);
  fmt::print(stderr, "\r\033[K{:3.0f} %  {} of {} {}, {} a second, {} left",
             100 * static_cast<double>(done_) / static_cast<double>(std::max<std::int64_t>(all_, 1)), Grouped(done_),
             Grouped(all_), unit_, Grouped(static_cast<std::int64_t>(rate)),
             Text(Nanos(static_cast<std::int64_t>(std::min(left, 9e8) * 1e9))));
  std::fflush(stderr);
}

}  // namespace tidemark
