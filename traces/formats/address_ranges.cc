// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/address_ranges.h"

#include <algorithm>
#include <iterator>

namespace tidemark {
namespace {

constexpr std::uint64_t kRange = std::uint64_t{1} << 42U;  // more than any device has
constexpr std::uint64_t kRangePage = std::uint64_t{1} << 21U;

}  // namespace

AddressRanges::AddressRanges(std::vector<std::uint64_t> addresses, std::uint64_t highest) {
  std::sort(addresses.begin(), addresses.end());
  highest_ = addresses.empty() ? 0 : addresses.back();
  if (highest_ <= highest) {
    return;
  }
  std::uint64_t before = 0;
  for (const std::uint64_t address : addresses) {
    if (address != 0 && (ranges_.empty() || address - before > kRange / 2)) {
      const std::uint64_t to = (Moved(before) / kRange + 2) * kRange;
      ranges_.push_back({address / kRangePage * kRangePage, std::min(to, highest + 1)});
    }
    before = address;
  }
  highest_ = Moved(highest_);
}

std::uint64_t AddressRanges::Moved(std::uint64_t address) const {
  if (ranges_.empty() || address == 0) {
    return address;
  }
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                      [](std::uint64_t value, const Range& range) { return value < range.begin; });
  const Range& range = *std::prev(after);
  return range.to + (address - range.begin);
}

}  // namespace tidemark
