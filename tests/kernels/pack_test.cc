// SPDX-License-Identifier: Apache-2.0
#include "kernels/pack.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace tidemark::kernels::cuda::pack_test {
namespace {

TEST(PackRange, HasEveryIndexOnceAndPacksThatBeginWithMultiples) {
  for (std::int64_t begin = 0; begin <= 3 * kPack; ++begin) {
    for (std::int64_t end = begin; end <= 6 * kPack; ++end) {
      SCOPED_TRACE(std::to_string(begin) + " to " + std::to_string(end));
      const PackRange range(begin, end);
      std::vector<int> seen(static_cast<std::size_t>(end) + 1);
      for (std::int64_t i = 0; i < range.packs(); ++i) {
        EXPECT_EQ(range.pack(i).first % kPack, 0);
        for (std::int64_t lane = 0; lane < kPack; ++lane) {
          ++seen.at(static_cast<std::size_t>(range.pack(i).first + lane));
        }
      }
      EXPECT_LT(range.others(), 2 * kPack);
      for (std::int64_t i = 0; i < range.others(); ++i) {
        ++seen.at(static_cast<std::size_t>(range.other(i)));
      }
      std::vector<int> once(seen.size(), 0);
      std::fill(once.begin() + begin, once.begin() + end, 1);
      EXPECT_EQ(seen, once);
    }
  }
}

TEST(PackRange, IsEmptyWhereItEndsBeforeItBegins) {
  const PackRange range(20, 11);
  EXPECT_EQ(range.packs(), 0);
  EXPECT_EQ(range.others(), 0);
}

TEST(Pack, IsReadAndWrittenWhereverItLies) {
  std::vector<float> from(5 * kPack);
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<float>(i);
  }
  for (std::int64_t first = 0; first < 2 * kPack; ++first) {
    const Pack<float> pack = Read(from.data(), PackAt{first});
    std::vector<float> to(from.size(), -1), expected = to;
    Write(pack, to.data(), PackAt{first + 3});
    std::copy_n(from.begin() + first, kPack, expected.begin() + first + 3);
    EXPECT_EQ(to, expected);
  }
}

TEST(Pack, IsTakenByBodiesOfEither) {
  const auto either = [](auto) {};
  const auto elements_alone = [](std::int64_t) {};
  EXPECT_TRUE(kTakesPacks<decltype(either)>);
  EXPECT_FALSE(kTakesPacks<decltype(elements_alone)>);
}

TEST(EachBefore, LeavesOutWhatIsBeyondTheEnd) {
  Pack<float> pack;
  std::iota(pack.lanes, pack.lanes + kPack, 1.0F);
  for (std::int64_t end = 0; end <= kPack + 1; ++end) {
    std::vector<float> to(kPack, 0), expected = to;
    EachBefore(end, PackAt{0}, pack, [&](auto at, const auto& value) { Write(value, to.data(), at); });
    std::copy_n(pack.lanes, std::min<std::int64_t>(end, kPack), expected.begin());
    EXPECT_EQ(to, expected) << end;
  }
}

TEST(PackBefore, HasZerosFromTheEndOn) {
  const auto number = [](auto at) { return Map([](std::int64_t i) { return static_cast<float>(i); }, IndexOf(at)); };
  const Pack<float> some = PackBefore<float>(11, PackAt{8}, number), all = PackBefore<float>(16, PackAt{8}, number);
  const std::vector<float> three = {8, 9, 10, 0, 0, 0, 0, 0}, eight = {8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(std::vector<float>(some.lanes, some.lanes + kPack), three);
  EXPECT_EQ(std::vector<float>(all.lanes, all.lanes + kPack), eight);
}

}  // namespace
}  // namespace tidemark::kernels::cuda::pack_test
