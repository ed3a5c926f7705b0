// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/address_ranges.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tidemark::address_ranges_test {
namespace {

constexpr std::uint64_t kHighest = std::uint64_t{1} << 51U;
constexpr std::uint64_t kLow = std::uint64_t{1} << 47U;   // where CUDA's addresses are
constexpr std::uint64_t kHigh = std::uint64_t{5} << 58U;  // and a simulated pool's
constexpr std::uint64_t kTerabyte = std::uint64_t{1} << 40U;

TEST(AddressRanges, whatIsLowEnoughStaysWhereItIs) {
  const AddressRanges ranges({kLow + 512, kLow, kHighest}, kHighest);
  EXPECT_EQ(ranges.Moved(kLow + 512), kLow + 512);
  EXPECT_EQ(ranges.Moved(kHighest), kHighest);
  EXPECT_EQ(ranges.highest(), kHighest);
}

TEST(AddressRanges, withinARangeBlocksLieToEachOtherAsTheyDid) {
  const std::uint64_t page = std::uint64_t{1} << 21U;
  const AddressRanges ranges({kHigh + 3 * kTerabyte / 2, kLow + 700, kHigh, kHigh + kTerabyte, kLow}, kHighest);
  EXPECT_EQ(ranges.Moved(kLow + 700) - ranges.Moved(kLow), 700U);
  EXPECT_EQ(ranges.Moved(kHigh + kTerabyte) - ranges.Moved(kHigh), kTerabyte);
  EXPECT_EQ(ranges.Moved(kHigh + 3 * kTerabyte / 2) - ranges.Moved(kHigh), 3 * kTerabyte / 2);
  EXPECT_EQ(ranges.Moved(kHigh) % page, 0U);
  EXPECT_GT(ranges.Moved(kHigh), ranges.Moved(kLow) + kTerabyte);
  EXPECT_LE(ranges.highest(), kHighest);
  EXPECT_EQ(ranges.highest(), ranges.Moved(kHigh + 3 * kTerabyte / 2));
}

TEST(AddressRanges, aLongOneReachesIntoNoOther) {
  const AddressRanges ranges({kHigh, kHigh + kTerabyte, kHigh + 2 * kTerabyte, kHigh + 3 * kTerabyte,
                              kHigh + 4 * kTerabyte, kHigh + 5 * kTerabyte, kHigh + 50 * kTerabyte},
                             kHighest);
  EXPECT_EQ(ranges.Moved(kHigh + 5 * kTerabyte) - ranges.Moved(kHigh), 5 * kTerabyte);
  EXPECT_GT(ranges.Moved(kHigh + 50 * kTerabyte), ranges.Moved(kHigh + 5 * kTerabyte) + kTerabyte);
}

TEST(AddressRanges, thoseThatAreTooManyStayTooHigh) {
  std::vector<std::uint64_t> addresses;
  for (std::uint64_t i = 1; i <= 4000; ++i) {
    addresses.push_back(i << 44U);
  }
  const AddressRanges ranges(addresses, kHighest);
  EXPECT_LE(ranges.Moved(addresses[0]), kHighest);
  EXPECT_LE(ranges.Moved(addresses[200]), kHighest);
  EXPECT_GT(ranges.Moved(addresses[300]), kHighest);  // 2^51 holds 256 of two ranges' length
  EXPECT_GT(ranges.Moved(addresses.back()), kHighest);
  EXPECT_GT(ranges.highest(), kHighest);
}

TEST(AddressRanges, whatIsNotKnownStaysSo) {
  EXPECT_EQ(AddressRanges({0, kHigh, 0}, kHighest).Moved(0), 0U);
  EXPECT_EQ(AddressRanges({}, kHighest).highest(), 0U);
}

}  // namespace
}  // namespace tidemark::address_ranges_test
