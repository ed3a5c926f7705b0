// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tidemark {

/// Ranges of addresses that an allocator reserved far apart, of which it maps parts, moved together where some are
/// higher than a reader of the addresses can tell apart. Within a range blocks lie to each other as they did.
class AddressRanges {
 public:
  /// Of these addresses, in any order; 0 is none. Nothing is moved where all are `highest` at most.
  AddressRanges(std::vector<std::uint64_t> addresses, std::uint64_t highest);

  /// Where an address of those is now; 0 for none. Beyond `highest` are those of ranges that are too many.
  std::uint64_t Moved(std::uint64_t address) const;
  /// Of all that were moved.
  std::uint64_t highest() const { return highest_; }

 private:
  struct Range {
    std::uint64_t begin = 0;  ///< a multiple of a page
    std::uint64_t to = 0;     ///< where that is now
  };
  std::vector<Range> ranges_;  ///< by begin; none: nothing is moved
  std::uint64_t highest_ = 0;
};

}  // namespace tidemark
