// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/quantity.h"
#include "traces/formats/chrome_log.h"
#include "traces/formats/string_pool.h"

namespace tidemark {
namespace {

/// Follows the operators of one thread after the other.
class OperatorFinder {
 public:
  /// The operators by thread, then by begin, outer ones first.
  OperatorFinder(const std::vector<ChromeSlice>& operators, const StringPool& names)
      : operators_(operators), names_(names) {}

  /// Asked for one thread after the other in the order of their numbers, for each in the order of time.
  std::uint32_t At(std::uint32_t thread, Nanos instant) {
    if (!open_.empty() && operators_[open_.back()].thread != thread) {
      open_.clear();
    }
    for (; next_ < operators_.size() && IsDue(operators_[next_], thread, instant); ++next_) {
      if (operators_[next_].thread == thread) {
        Close(operators_[next_].begin);
        open_.push_back(next_);
      }
    }
    Close(instant);
    std::uint32_t name = 0;
    for (std::size_t up = 0; up < std::min(open_.size(), kCallers); ++up) {
      name = operators_[open_[open_.size() - 1 - up]].name;
      if (!OnlyAllocates(names_[name])) {
        break;
      }
    }
    return name;
  }

 private:
  static constexpr std::size_t kCallers = 8;  ///< of operators that only allocate: never so many in one another

  static bool IsDue(const ChromeSlice& slice, std::uint32_t thread, Nanos instant) {
    return slice.thread < thread || (slice.thread == thread && slice.begin <= instant);
  }

  static bool OnlyAllocates(const std::string& name) {
    return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") || name.starts_with("aten::resize_");
  }

  void Close(Nanos instant) {
    while (!open_.empty() && operators_[open_.back()].end < instant) {
      open_.pop_back();
    }
  }

  const std::vector<ChromeSlice>& operators_;
  const StringPool& names_;
  std::size_t next_ = 0;
  std::vector<std::size_t> open_;
};

bool IsOuterFirst(const ChromeSlice& a, const ChromeSlice& b) {
  return std::tuple(a.thread, a.begin, b.end) < std::tuple(b.thread, b.begin, a.end);
}

bool IsEarlierInThread(const ChromeBlock& a, const ChromeBlock& b) {
  return std::tuple(a.thread, a.at, a.order) < std::tuple(b.thread, b.at, b.order);
}

}  // namespace

void FindSites(ChromeLog& log) {
  std::stable_sort(log.operators.begin(), log.operators.end(), IsOuterFirst);
  std::stable_sort(log.blocks.begin(), log.blocks.end(), IsEarlierInThread);
  OperatorFinder finder(log.operators, log.names);
  for (ChromeBlock& block : log.blocks) {
    block.site = finder.At(block.thread, block.at);
  }
}

}  // namespace tidemark
