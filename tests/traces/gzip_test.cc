// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>

#include "tests/traces/kineto_sample.h"
#include "traces/formats/format.h"

namespace tidemark::gzip_test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kPlenty = std::int64_t{1} << 30;

std::string Compressed(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

TEST(Gzip, severalMembersAreOneText) {
  const Result<std::string> text = Inflated(Compressed("first ") + Compressed("second"), kPlenty);
  ASSERT_TRUE(text) << text.error().Text();
  EXPECT_EQ(*text, "first second");
}

TEST(Gzip, moreThanOnePieceAndTextThatEndsWithAPieceComeWhole) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1} << 20, (std::size_t{3} << 20) + 7}) {
    std::string text(size, 'x');
    std::mt19937 random(3);
    for (char& c : text) {
      c = static_cast<char>('a' + random() % 26);
    }
    const Result<std::string> read = Inflated(Compressed(text), kPlenty);
    ASSERT_TRUE(read);
    EXPECT_TRUE(*read == text) << size;
  }
}

TEST(Gzip, aFileCutAnywhereIsASentence) {
  const std::string whole = Compressed(KinetoSample());
  for (std::size_t length = 2; length < whole.size(); ++length) {
    const Result<TraceFile> file = ReadTraces(std::string_view(whole).substr(0, length));
    ASSERT_FALSE(file) << length;
    EXPECT_EQ(file.error().code, ErrorCode::bad_input);
    EXPECT_THAT(file.error().message, HasSubstr("damaged or cut off"));
  }
}

TEST(Gzip, aFlippedBitIsNoticed) {
  const std::string whole = Compressed(KinetoSample());
  for (std::size_t at = 10; at < whole.size(); ++at) {  // behind the header, whose time and flags matter to nobody
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(Inflated(damaged, kPlenty)) << at;
  }
}

TEST(Gzip, whatGrowsBeyondTheLimitIsRefused) {
  const Result<std::string> text = Inflated(Compressed(std::string(std::size_t{64} << 20, '0')), std::int64_t{2} << 20);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("more than 2.00 MiB"));
}

TEST(Gzip, membersThatHoldLittleAreNoReasonNotToLookFurther) {
  const std::string sample = KinetoSample();
  const std::string whole = Compressed("") + Compressed(sample.substr(0, 1)) + Compressed(sample.substr(1));
  const Result<TraceFile> file = ReadTraces(whole);
  ASSERT_TRUE(file) << file.error().Text();
  EXPECT_EQ(file->format, "chrome");
}

TEST(Gzip, whatBeginsLikeNoTraceIsNotUnpackedToItsEnd) {
  std::string zeros = Compressed(std::string(std::size_t{64} << 20, '\0'));
  zeros.resize(zeros.size() - 100);  // which only somebody who reads that far can miss
  const Result<TraceFile> file = ReadTraces(zeros);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("not a trace file of a known format"));
}

TEST(Gzip, aCompressedTraceReadsLikeTheTraceItself) {
  const Result<TraceFile> file = ReadTraces(Compressed(KinetoSample()));
  ASSERT_TRUE(file) << file.error().Text();
  EXPECT_EQ(file->format, "chrome");
  const Result<TraceFile> twice = ReadTraces(Compressed(Compressed(KinetoSample())));
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr("another gzip file"));
}

}  // namespace
}  // namespace tidemark::gzip_test
