// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/decimal_micros.h"

#include <gtest/gtest.h>

#include <optional>

namespace tidemark::decimal_micros_test {
namespace {

TEST(DecimalMicros, keepsEveryNanosecondOfALargeTime) {
  // As a double this is 1722334455667788.0: its next neighbour is a quarter of a microsecond away.
  EXPECT_EQ(NanosOfMicros("1722334455667788.123"), Nanos(1722334455667788123));
  EXPECT_EQ(NanosOfMicros("23810.795"), Nanos(23810795));
  EXPECT_EQ(NanosOfMicros("-7.5"), Nanos(-7500));
  EXPECT_EQ(NanosOfMicros("12"), Nanos(12000));
}

TEST(DecimalMicros, roundsWhatIsSmallerThanANanosecond) {
  EXPECT_EQ(NanosOfMicros("0.0004"), Nanos(0));
  EXPECT_EQ(NanosOfMicros("0.0005"), Nanos(1));
  EXPECT_EQ(NanosOfMicros("1.99999999"), Nanos(2000));
}

TEST(DecimalMicros, readsExponentsAsFarAsADoubleGoes) {
  EXPECT_EQ(NanosOfMicros("1.5e3"), Nanos(1500000));
  EXPECT_EQ(NanosOfMicros("25E-1"), Nanos(2500));
}

TEST(DecimalMicros, refusesWhatIsNoTime) {
  for (const char* text :
       {"", "-", ".5", "abc", "1x", "1.5.5", "99999999999999999999", "1e300", "2305843009213693952"}) {
    EXPECT_EQ(NanosOfMicros(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tidemark::decimal_micros_test
