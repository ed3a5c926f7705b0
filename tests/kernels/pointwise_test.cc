// SPDX-License-Identifier: Apache-2.0
#include "kernels/pointwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/exponential.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::pointwise_test {
namespace {

std::uint16_t Bf16Bits(float value) {
  std::uint16_t bits = 0;
  Copy({{DType::fp32, 1}, &value}, {{DType::bf16, 1}, &bits});
  return bits;
}

TEST(Bf16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(Bf16Bits(1.0F), 0x3F80);
  EXPECT_EQ(Bf16Bits(1.0F + 0x1p-8F), 0x3F80);             // half way to the next: the even one is below
  EXPECT_EQ(Bf16Bits(1.0F + 3 * 0x1p-8F), 0x3F82);         // half way again: the even one is above
  EXPECT_EQ(Bf16Bits(1.0F + 0x1p-8F + 0x1p-20F), 0x3F81);  // above half way
  EXPECT_EQ(Bf16Bits(-1.0F - 3 * 0x1p-8F), 0xBF82);
  EXPECT_EQ(Bf16Bits(std::numeric_limits<float>::max()), 0x7F80);  // above the largest by more than half: infinite
  EXPECT_EQ(Bf16Bits(-std::numeric_limits<float>::infinity()), 0xFF80);
  EXPECT_EQ(Bf16Bits(std::bit_cast<float>(0x7F800001U)) & 0x7FC0, 0x7FC0);  // a NaN in the bits that are cut stays one
  EXPECT_EQ(Bf16Bits(0x1p-133F), 0x0001);                                   // its smallest subnormal
}

TEST(Exponential, IsWithinTwoUnitsInTheLastPlaceAndRightAtTheEnds) {
  for (double x = -87; x < 88; x += 0.0071) {
    const auto narrow = static_cast<float>(x);
    ASSERT_NEAR(Exp(narrow) / std::exp(static_cast<double>(narrow)), 1, 2 * 0x1p-23) << narrow;
  }
  for (double x = -700; x < 709; x += 0.0713) {
    ASSERT_NEAR(Exp(x) / std::exp(x), 1, 2 * 0x1p-52) << x;
  }
  const auto ends = []<class C>(C infinity) {
    EXPECT_EQ(Exp(-infinity), 0);
    EXPECT_EQ(Exp(infinity), infinity);
    EXPECT_EQ(Exp(C(0)), 1);
    EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<C>::quiet_NaN())));
    const C smallest_log = std::log(std::numeric_limits<C>::denorm_min());
    EXPECT_GT(Exp(smallest_log), 0);
    EXPECT_EQ(Exp(smallest_log * C(1.01)), 0);
  };
  ends(std::numeric_limits<float>::infinity());
  ends(std::numeric_limits<double>::infinity());
}

TEST(Copy, CastsAndMultipliesWithOneRounding) {
  Numbers to(TensorType{DType::bf16, 3});
  Copy(Numbers(DType::fp32, {1, 3, 1 + 0x1p-8}), to, 1.0 / 3);
  // 1/3 in bf16 is 0x3EAB = 171/512; the last: (1 + 2^-8)/3 = 0.33463... lies nearest to 171/512 = 0.33398 (steps
  // 2^-9).
  EXPECT_EQ(to.values(), (std::vector<double>{171.0 / 512, 1, 171.0 / 512}));
}

TEST(Copy, KeepsBitsOfEqualDTypesAndWorksInPlace) {
  const Numbers ids = Numbers::Integers({5, -100, 1LL << 40});
  Numbers to(ids.type());
  Copy(ids, to);
  EXPECT_EQ(to.bytes(), ids.bytes());
  Numbers x(DType::bf16, {2, 4});
  Scale(0.25, x);
  EXPECT_EQ(x.values(), (std::vector<double>{0.5, 1}));
}

TEST(Add, SumsFromLeftToRightAndRoundsOnce) {
  const Numbers a(DType::bf16, {256}), b(DType::bf16, {1}), c(DType::bf16, {1});
  Numbers sum(TensorType{DType::bf16, 1});
  const ConstTensor addends[] = {a, b, c};
  Add(addends, sum);
  EXPECT_EQ(sum[0], 258);  // rounding after each would leave 256
}

TEST(Add, MayWriteIntoAnyAddend) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    for (int into = 0; into < 3; ++into) {
      const std::int64_t elements = 2 * 1024 + 5;
      Numbers x[3] = {Numbers::Random({dtype, elements}, 1), Numbers::Random({dtype, elements}, 2),
                      Numbers::Random({dtype, elements}, 3)};
      Numbers expected(x[0].type());
      const ConstTensor addends[] = {x[0], x[1], x[2]};
      Add(addends, expected);
      Add(addends, x[into]);
      EXPECT_EQ(x[into].bytes(), expected.bytes());
    }
  }
}

TEST(Accumulate, StallsInBf16AndNotInFp32) {
  Numbers narrow(DType::bf16, {0}), wide(DType::fp32, {0});
  const Numbers one(DType::bf16, {1});
  for (int i = 0; i < 1000; ++i) {
    Accumulate(one, narrow);
    Accumulate(one, wide);
  }
  EXPECT_EQ(narrow[0], 256);  // 256 + 1 is a tie, which goes to the even 256
  EXPECT_EQ(wide[0], 1000);
  Accumulate(one, wide, 1.0 / 8);
  EXPECT_EQ(wide[0], 1000.125);
}

TEST(Zero, ClearsWhateverWasThere) {
  Numbers x(TensorType{DType::fp32, 3});
  Zero(x);
  EXPECT_EQ(x.values(), (std::vector<double>{0, 0, 0}));
}

TEST(Slice, IsAStretchOfTheSameMemory) {
  Numbers x(DType::bf16, {1, 2, 3, 4});
  Zero(Slice(Tensor(x), 1, 2));
  EXPECT_EQ(x.values(), (std::vector<double>{1, 0, 0, 4}));
  EXPECT_DEATH(Slice(Tensor(x), 3, 2), "elements");
}

}  // namespace
}  // namespace tidemark::kernels::pointwise_test
