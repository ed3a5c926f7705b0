// SPDX-License-Identifier: Apache-2.0
#include "base/quantity.h"

#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

namespace tidemark::quantity_test {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Arithmetic that could overflow ends the process as a fault of ours, exit code 70.
#define EXPECT_FAULT(statement) EXPECT_EXIT(statement, testing::ExitedWithCode(70), "internal fault")

TEST(Quantity, AddsSubtractsScalesAndCompares) {
  EXPECT_EQ(Bytes(3) + Bytes(4), Bytes(7));
  EXPECT_EQ(Bytes(3) - Bytes(4), Bytes(-1));
  EXPECT_EQ(3 * Bytes(4), Bytes(12));
  EXPECT_EQ(Bytes(4) * 3, Bytes(12));
  EXPECT_EQ(Bytes(7) / 2, Bytes(3));
  EXPECT_LT(Bytes(3), Bytes(4));
  EXPECT_EQ(Bytes(), Bytes(0));
}

TEST(Quantity, OfDifferentUnitsDoesNotMixAndIsMadeExplicitly) {
  static_assert(!std::is_convertible_v<std::int64_t, Bytes>);
  static_assert(!std::is_convertible_v<Bytes, std::int64_t>);
  static_assert(!std::is_constructible_v<Bytes, Nanos>);
  static_assert(!std::is_assignable_v<Bytes&, Nanos>);
}

TEST(QuantityDeathTest, OverflowEndsTheProcessInsteadOfGivingAPlausibleNumber) {
  EXPECT_FAULT(Bytes(kMost) + Bytes(1));
  EXPECT_FAULT(Bytes(-kMost) - Bytes(2));
  EXPECT_FAULT(Bytes(kMost / 2 + 1) * 2);
  EXPECT_FAULT(Bytes(1) / 0);
}

TEST(Rate, GivesSecondsForAnAmount) {
  EXPECT_DOUBLE_EQ(SecondsAt(Bytes(3000), BytesPerSec(1500)), 2);
  EXPECT_DOUBLE_EQ(SecondsAt(Flops(1), FlopsPerSec(4) * 0.5), 0.5);
}

TEST(RateDeathTest, OfZeroIsAFaultOfOurs) { EXPECT_FAULT(SecondsAt(Bytes(1), BytesPerSec(0))); }

TEST(RoundToNanos, RoundsToTheNearest) {
  EXPECT_EQ(RoundToNanos(0), Nanos(0));
  EXPECT_EQ(RoundToNanos(1.4e-9), Nanos(1));
  EXPECT_EQ(RoundToNanos(1.6e-9), Nanos(2));
  EXPECT_EQ(RoundToNanos(2.5), Nanos(2500000000));
}

TEST(RoundToNanosDeathTest, RefusesWhatIsNoDuration) {
  EXPECT_FAULT(RoundToNanos(-1));
  EXPECT_FAULT(RoundToNanos(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FAULT(RoundToNanos(1e10));  // seconds: more nanoseconds than 63 bits hold
}

TEST(RoundUp, GivesTheSmallestMultipleNotBelow) {
  EXPECT_EQ(RoundUp(0, 512), 0);
  EXPECT_EQ(RoundUp(1, 512), 512);
  EXPECT_EQ(RoundUp(512, 512), 512);
  EXPECT_EQ(RoundUp(513, 512), 1024);
  EXPECT_EQ(RoundUp(kMost - 511, 512), kMost - 511) << "2^63 - 512 is a multiple already";
}

TEST(CeilDiv, RoundsUpAndNeverOverflows) {
  EXPECT_EQ(CeilDiv(0, 3), 0);
  EXPECT_EQ(CeilDiv(6, 3), 2);
  EXPECT_EQ(CeilDiv(7, 3), 3);
  EXPECT_EQ(CeilDiv(kMost, 2), kMost / 2 + 1);
}

TEST(RoundUpDeathTest, RefusesWhatDoesNotFit) {
  EXPECT_FAULT(RoundUp(kMost, 512));
  EXPECT_FAULT(RoundUp(-1, 512));
  EXPECT_FAULT(RoundUp(1, 0));
}

}  // namespace
}  // namespace tidemark::quantity_test
