// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/nested_lanes.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace tidemark {
namespace {

/// Lanes that are looked at for one interval, the newest ones. Thousands of lanes are of no use to anybody, but to look
/// at all of them for each interval would take a file's whole length squared.
constexpr std::size_t kTried = 64;

class Nesting {
 public:
  explicit Nesting(std::span<const Interval> intervals) : intervals_(intervals) {
    marks_.reserve(2 * intervals.size());
  }

  void Add(std::uint32_t interval) {
    const std::uint32_t lane = LaneFor(intervals_[interval]);
    marks_.push_back({lane, interval, true});
    open_[lane].push_back(interval);
  }

  std::vector<LaneMark> Finish() && {
    for (std::uint32_t lane = 0; lane < open_.size(); ++lane) {
      while (!open_[lane].empty()) {
        EndLast(lane);
      }
    }
    return std::move(marks_);
  }

 private:
  std::uint32_t LaneFor(const Interval& interval) {
    for (std::size_t lane = open_.size() - std::min(open_.size(), kTried); lane < open_.size(); ++lane) {
      std::vector<std::uint32_t>& open = open_[lane];
      while (!open.empty() && intervals_[open.back()].end <= interval.begin) {
        EndLast(static_cast<std::uint32_t>(lane));
      }
      if (open.empty() || intervals_[open.back()].end >= interval.end) {
        return static_cast<std::uint32_t>(lane);
      }
    }
    open_.emplace_back();
    return static_cast<std::uint32_t>(open_.size() - 1);
  }

  void EndLast(std::uint32_t lane) {
    marks_.push_back({lane, open_[lane].back(), false});
    open_[lane].pop_back();
  }

  std::span<const Interval> intervals_;
  std::vector<std::vector<std::uint32_t>> open_;  ///< by lane: what has begun, the innermost last
  std::vector<LaneMark> marks_;
};

}  // namespace

std::vector<LaneMark> NestInLanes(std::span<const Interval> intervals) {
  std::vector<std::uint32_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto before = [&](std::uint32_t a, std::uint32_t b) {  // of those that begin together the longest is outside
    return intervals[a].begin != intervals[b].begin ? intervals[a].begin < intervals[b].begin
                                                    : intervals[a].end > intervals[b].end;
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::stable_sort(order.begin(), order.end(), before);
  }
  Nesting nesting(intervals);
  for (const std::uint32_t interval : order) {
    nesting.Add(interval);
  }
  return std::move(nesting).Finish();
}

}  // namespace tidemark
