// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace tidemark::text_test {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(Text, GivesBytesThreeDigitsInBinaryUnits) {
  EXPECT_EQ(Text(Bytes(0)), "0 B");
  EXPECT_EQ(Text(Bytes(1)), "1 B");
  EXPECT_EQ(Text(Bytes(-12)), "-12 B");
  EXPECT_EQ(Text(Bytes(999)), "999 B");
  EXPECT_EQ(Text(Bytes(1536)), "1.50 KiB");
  EXPECT_EQ(Text(Bytes(kGiB + kGiB / 4)), "1.25 GiB");
  EXPECT_EQ(Text(Bytes(80 * kGiB)), "80.0 GiB");
  EXPECT_EQ(Text(Bytes(606375936)), "578 MiB");  // 578.28 * 2^20
  EXPECT_EQ(Text(Bytes(-3 * kGiB / 2)), "-1.50 GiB");
}

TEST(Text, ChangesTheUnitBeforeTheNumberWouldRoundToIt) {
  EXPECT_EQ(Text(Bytes(kGiB - 1)), "1.00 GiB");
  EXPECT_EQ(Text(Bytes(1023 * 1024)), "1023 KiB");  // 0.999 MiB
  EXPECT_EQ(Text(Nanos(999999)), "1.00 ms");
}

TEST(Text, GivesTimesTheUnitThatReadsBest) {
  EXPECT_EQ(Text(Nanos(318)), "318 ns");
  EXPECT_EQ(Text(Nanos(4500)), "4.50 us");
  EXPECT_EQ(Text(Nanos(4310000)), "4.31 ms");
  EXPECT_EQ(Text(Nanos(2050000000)), "2.05 s");
}

TEST(Text, GivesRatesAndFlopsInDecimalUnits) {
  EXPECT_EQ(Text(Flops(1200000000)), "1.20 GFLOP");
  EXPECT_EQ(Text(Flops(50000)), "50.0 KFLOP");
  EXPECT_EQ(Text(BytesPerSec(3.35e12)), "3.35 TB/s");
  EXPECT_EQ(Text(BytesPerSec(50e9)), "50.0 GB/s");
  EXPECT_EQ(Text(FlopsPerSec(989.4e12)), "989 TFLOP/s");
}

TEST(Signed, ShowsWhichWayADifferenceGoes) {
  EXPECT_EQ(Signed(Bytes(3 << 19)), "+1.50 MiB");
  EXPECT_EQ(Signed(Bytes(-12)), "-12 B");
  EXPECT_EQ(Signed(Bytes(0)), "0 B");
  EXPECT_EQ(Signed(Nanos(318)), "+318 ns");
  EXPECT_EQ(Signed(Nanos(-4'310'000)), "-4.31 ms");
}

TEST(Grouped, PutsACommaBeforeEveryThirdDigit) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(606375936), "606,375,936");
  EXPECT_EQ(Grouped(-123), "-123");
  EXPECT_EQ(Grouped(-1234), "-1,234");
  EXPECT_EQ(Grouped(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Counted, SaysOneOfThemAndManyOfThem) {
  EXPECT_EQ(Counted(1, "rank"), "1 rank");
  EXPECT_EQ(Counted(0, "rank"), "0 ranks");
  EXPECT_EQ(Counted(1024, "rank"), "1,024 ranks");
  EXPECT_EQ(Counted(1, "microbatch"), "1 microbatch");
  EXPECT_EQ(Counted(2, "microbatch"), "2 microbatches");
  EXPECT_EQ(Counted(2, "flush"), "2 flushes");
  EXPECT_EQ(Counted(2, "process"), "2 processes");
  EXPECT_EQ(Counted(2, "path"), "2 paths");
}

TEST(ParseBytes, TakesBinaryAndDecimalUnitsWithOrWithoutASpace) {
  EXPECT_EQ(*ParseBytes("80GiB"), Bytes(80 * kGiB));
  EXPECT_EQ(*ParseBytes("24 GiB"), Bytes(24 * kGiB));
  EXPECT_EQ(*ParseBytes("512 MB"), Bytes(512000000));
  EXPECT_EQ(*ParseBytes("1.5kib"), Bytes(1536));
  EXPECT_EQ(*ParseBytes("1048576"), Bytes(1048576));
  EXPECT_EQ(*ParseBytes("7 B"), Bytes(7));
  EXPECT_EQ(*ParseBytes("0"), Bytes(0));
  EXPECT_EQ(*ParseBytes("2 TB"), Bytes(2000000000000));
}

TEST(ParseBytes, RefusesWhatIsNoSizeAndSaysWhatIs) {
  for (const char* text :
       {"", " ", "GiB", "-1", "-5 GiB", "12 M", "12 Gb/s", "0x10", "1,5 GiB", "nan", "five", "80GiB!"}) {
    const Result<Bytes> parsed = ParseBytes(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::bad_input);
    EXPECT_EQ(parsed.error().message, "'" + std::string(text) + "' is not a size");
    EXPECT_FALSE(parsed.error().hint.empty());
  }
}

TEST(ParseBytes, RefusesMoreThan2To62) {
  EXPECT_EQ(*ParseBytes("4611686018427387904"), Bytes(std::int64_t{1} << 62));
  for (const char* text : {"4611686018427389000", "9999999 TiB", "1e300", "inf"}) {
    const Result<Bytes> parsed = ParseBytes(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().message, "'" + std::string(text) + "' is more than 2^62 bytes");
  }
}

TEST(ParseNanos, TakesATimeWithItsUnit) {
  EXPECT_EQ(*ParseNanos("250 ns"), Nanos(250));
  EXPECT_EQ(*ParseNanos("4.5us"), Nanos(4500));
  EXPECT_EQ(*ParseNanos("2 s"), Nanos(2000000000));
  for (const char* text : {"250", "-1 ns", "3 min", "", "1e300 s"}) {
    EXPECT_FALSE(ParseNanos(text).ok()) << text;
  }
}

TEST(ParseBytesPerSec, TakesABandwidthInBytesOrBits) {
  EXPECT_DOUBLE_EQ(ParseBytesPerSec("3.35 TB/s")->per_second(), 3.35e12);
  EXPECT_DOUBLE_EQ(ParseBytesPerSec("400 Gbit/s")->per_second(), 50e9);
  for (const char* text : {"3.35", "400 Gb", "-1 GB/s", ""}) {
    EXPECT_FALSE(ParseBytesPerSec(text).ok()) << text;
  }
}

TEST(ParseFlopsPerSec, TakesARateOfArithmetic) {
  EXPECT_DOUBLE_EQ(ParseFlopsPerSec("989.4 TFLOP/s")->per_second(), 989.4e12);
  for (const char* text : {"989.4", "989.4 TB/s", "-1 TFLOP/s", ""}) {
    EXPECT_FALSE(ParseFlopsPerSec(text).ok()) << text;
  }
}

TEST(Excerpt, KeepsAShortTextWhole) {
  EXPECT_EQ(Excerpt("", 0), "");
  EXPECT_EQ(Excerpt(std::string(60, 'x'), 59), std::string(60, 'x'));
}

TEST(Excerpt, ShowsSixtyCharactersAroundTheFaultOfALongText) {
  const std::string text = std::string(100, 'a') + "!" + std::string(100, 'b');
  EXPECT_EQ(Excerpt(text, 100), "..." + std::string(30, 'a') + "!" + std::string(29, 'b') + "...");
  EXPECT_EQ(Excerpt(text, 0), std::string(60, 'a') + "...");
  EXPECT_EQ(Excerpt(text, text.size()), "..." + std::string(60, 'b'));
}

TEST(Excerpt, CutsNoCharacterInTwo) {
  std::string text = "-";
  for (int i = 0; i < 100; ++i) {
    text += "\xc3\xa9";  // two bytes
  }
  EXPECT_EQ(Excerpt(text, 0).size(), 59U + 3U);
  EXPECT_EQ(Excerpt(text, 100).substr(0, 5), "...\xc3\xa9");
  EXPECT_EQ(CountCharacters(text), 101);
}

TEST(EditDistance, CountsLettersAndSwapsOfNeighbours) {
  EXPECT_EQ(EditDistance("dtype", "dtype"), 0U);
  EXPECT_EQ(EditDistance("dytpe", "dtype"), 1U);
  EXPECT_EQ(EditDistance("dtyep", "dtype"), 1U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);  // two replaced, one inserted
  EXPECT_EQ(EditDistance("", "ab"), 2U);
  EXPECT_EQ(EditDistance("ca", "abc"), 3U) << "what was swapped is not parted as well";
}

TEST(Nearest, SuggestsWhatATypingMistakeMeant) {
  const std::vector<std::string> words = {"layout", "strategy", "network", "tp", "dp", "sequence_length"};
  EXPECT_EQ(Nearest("lyaout", words), "layout");
  EXPECT_EQ(Nearest("stratgy", words), "strategy");
  EXPECT_EQ(Nearest("sequence_len", words), "sequence_length");
  EXPECT_EQ(Nearest("layout", words), "layout");
}

TEST(Nearest, SuggestsWhatAWordBegins) {
  const std::vector<std::string> words = {"ddp-every", "ddp-last", "hsdp", "fsdp1"};
  EXPECT_EQ(Nearest("ddp", words), "ddp-last") << "though hsdp is two letters off";
  EXPECT_EQ(Nearest("fsdp", words), "fsdp1");
  EXPECT_EQ(Nearest("dd", words), "") << "too little to go by";
}

TEST(Nearest, SuggestsNothingForAnotherWord) {
  const std::vector<std::string> words = {"layout", "strategy", "network", "tp", "dp"};
  EXPECT_EQ(Nearest("capacity", words), "");
  EXPECT_EQ(Nearest("xy", words), "") << "no letter of it is right";
  EXPECT_EQ(Nearest("", words), "");
  EXPECT_EQ(Nearest("layout", {}), "");
}

TEST(Nearest, PrefersTheFirstOfEquallyNearWords) {
  const std::vector<std::string> words = {"tp", "dp"};
  EXPECT_EQ(Nearest("pp", words), "tp");
}

TEST(LowerCase, ChangesLettersOfAsciiOnly) {
  EXPECT_EQ(LowerCase("REDUCE_Scatter 2.\xC3\x84"), "reduce_scatter 2.\xC3\x84");
}

}  // namespace
}  // namespace tidemark::text_test
