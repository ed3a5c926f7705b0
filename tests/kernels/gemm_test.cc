// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "kernels/linear.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::gemm_test {
namespace {

struct Sum {
  double value = 0, magnitude = 0;  ///< of products; sum of their absolute values
};

/// Element [i, j] of the product of matrix `batch`.
Sum Naive(const Gemm& op, const Numbers& a, const Numbers& b, std::int64_t batch, std::int64_t i, std::int64_t j) {
  Sum sum;
  for (std::int64_t k = 0; k < op.k; ++k) {
    const std::int64_t from_a = batch * op.m * op.k + (op.transpose_a ? k * op.m + i : i * op.k + k);
    const std::int64_t from_b = batch * op.k * op.n + (op.transpose_b ? j * op.k + k : k * op.n + j);
    sum.value += a[from_a] * b[from_b];
    sum.magnitude += std::abs(a[from_a] * b[from_b]);
  }
  return sum;
}

/// A sum of k products in u loses k u of their magnitudes at most (Higham, 2002, 3.1; one more for adding to C), and
/// one rounding when it is stored.
void ExpectProduct(const Gemm& op, const Numbers& a, const Numbers& b, const Numbers& before, const Numbers& c) {
  const double compute = c.type().dtype == DType::fp64 ? UnitRoundoff(DType::fp64) : UnitRoundoff(DType::fp32);
  for (std::int64_t i = 0; i < c.type().elements; ++i) {
    const Sum sum = Naive(op, a, b, i / (op.m * op.n), i / op.n % op.m, i % op.n);
    const double start = op.accumulate ? before[i] : 0;
    const double expected = sum.value + start;
    const double bound = static_cast<double>(op.k + 1) * compute * (sum.magnitude + std::abs(start)) * 1.01 +
                         UnitRoundoff(c.type().dtype) * std::abs(expected) * 1.01 + 1e-40;
    ASSERT_NEAR(c[i], expected, bound) << "element " << i;
  }
}

class EveryProduct : public testing::TestWithParam<std::tuple<DType, DType, bool, bool, bool>> {};

TEST_P(EveryProduct, IsTheNaiveOneWithinItsRoundings) {
  const auto [inputs, output, transpose_a, transpose_b, accumulate] = GetParam();
  for (const Gemm& shape : {Gemm{1, 1, 1}, Gemm{3, 5, 7, 2}, Gemm{33, 17, 65}, Gemm{1, 40, 9}}) {
    Gemm op = shape;
    op.transpose_a = transpose_a;
    op.transpose_b = transpose_b;
    op.accumulate = accumulate;
    const Numbers a = Numbers::Random({inputs, op.batch * op.m * op.k}, 1);
    const Numbers b = Numbers::Random({inputs, op.batch * op.k * op.n}, 2);
    const Numbers before = Numbers::Random(GemmOutput(op, output), 3);
    Numbers c = accumulate ? before : Numbers(GemmOutput(op, output));
    Multiply(op, a, b, c);
    ExpectProduct(op, a, b, before, c);
  }
}

INSTANTIATE_TEST_SUITE_P(Gemm, EveryProduct,
                         testing::Combine(testing::Values(DType::fp64, DType::fp32, DType::bf16),
                                          testing::Values(DType::fp64, DType::fp32, DType::bf16), testing::Bool(),
                                          testing::Bool(), testing::Bool()));

TEST(Gemm, TilesOfWidenedOperandsFitTogetherAtTheirBorders) {
  const Gemm op{.m = 259, .n = 261, .k = 515};
  // Small integers are exact in bf16, and so are their products' sums in fp32.
  Numbers a(TensorType{DType::bf16, op.m * op.k}), b(TensorType{DType::bf16, op.k * op.n});
  std::vector<double> x, y;
  for (std::int64_t i = 0; i < op.m * op.k; ++i) {
    x.push_back(static_cast<double>((i * 7 + i / op.k) % 5) - 2);
  }
  for (std::int64_t i = 0; i < op.k * op.n; ++i) {
    y.push_back(static_cast<double>((i * 3 + i / op.n) % 7) - 3);
  }
  Numbers c(GemmOutput(op, DType::fp32));
  Multiply(op, Numbers(DType::bf16, x), Numbers(DType::bf16, y), c);
  const std::vector<double> values = c.values();
  for (std::int64_t i = 0; i < op.m; i += 37) {
    for (std::int64_t j = 0; j < op.n; j += 13) {
      double sum = 0;
      for (std::int64_t k = 0; k < op.k; ++k) {
        sum += x[static_cast<std::size_t>(i * op.k + k)] * y[static_cast<std::size_t>(k * op.n + j)];
      }
      ASSERT_EQ(values[static_cast<std::size_t>(i * op.n + j)], sum) << i << ", " << j;
    }
  }
}

TEST(Gemm, AddsIntoBf16WithOneRoundingAndStalls) {
  // 256 + 1/2 is no bf16 number (its steps are 2 there): the addend is lost each time, as in a real bf16 accumulator.
  const Gemm op{.m = 1, .n = 1, .k = 1, .accumulate = true};
  Numbers c(DType::bf16, {256.0});
  for (int i = 0; i < 100; ++i) {
    Multiply(op, Numbers(DType::bf16, {0.5}), Numbers(DType::bf16, {1.0}), c);
  }
  EXPECT_EQ(c[0], 256.0);
}

TEST(Gemm, DoesNotReadWhatItOverwrites) {
  const Gemm op{.m = 40, .n = 24, .k = 16};
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    Numbers c(GemmOutput(op, dtype));  // NaN
    Multiply(op, Numbers::Random({dtype, op.m * op.k}, 4), Numbers::Random({dtype, op.k * op.n}, 5), c);
    for (const double value : c.values()) {
      ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(Gemm, NonFiniteOperandsReachTheirRowAndNoOther) {
  const Gemm op{.m = 4, .n = 4, .k = 4};
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    Numbers a = Numbers::Random({dtype, 16}, 6);
    a.Set(5, std::numeric_limits<double>::quiet_NaN());
    a.Set(10, std::numeric_limits<double>::infinity());
    Numbers c(GemmOutput(op, dtype));
    Multiply(op, a, Numbers::Random({dtype, 16}, 7), c);
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_TRUE(std::isfinite(c[j]) && std::isnan(c[4 + j]) && std::isinf(c[8 + j]) && std::isfinite(c[12 + j]));
    }
  }
}

/// The product with each operand `shift` or more elements behind the beginning of its memory.
std::vector<unsigned char> BitsOfShifted(const Gemm& op, const Numbers& a, const Numbers& b, std::int64_t shift) {
  const DType dtype = a.type().dtype;
  Numbers c(GemmOutput(op, dtype));
  Numbers a2(TensorType{dtype, a.type().elements + shift}), b2(TensorType{dtype, b.type().elements + 2 * shift});
  Numbers c2(TensorType{dtype, c.type().elements + 3 * shift});
  const Tensor a3 = Slice(Tensor(a2), shift, a.type().elements), b3 = Slice(Tensor(b2), shift, b.type().elements);
  const Tensor c3 = Slice(Tensor(c2), 3 * shift, c.type().elements);
  Copy(a, a3);
  Copy(b, b3);
  Multiply(op, a3, b3, c3);
  Copy(c3, c);
  return c.bytes();
}

TEST(Gemm, TheSameOperandsGiveTheSameBitsWhereverTheyLie) {
  for (const Gemm& op : {Gemm{19, 23, 31}, Gemm{4, 5, 3}, Gemm{1, 6, 7}, Gemm{7, 1, 9}, Gemm{1, 1, 40}}) {
    for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
      const Numbers a = Numbers::Random({dtype, op.m * op.k}, 8), b = Numbers::Random({dtype, op.k * op.n}, 9);
      for (std::int64_t shift = 1; shift < 9; ++shift) {
        ASSERT_EQ(BitsOfShifted(op, a, b, shift), BitsOfShifted(op, a, b, 0)) << op.m << " " << op.n << " " << shift;
      }
    }
  }
}

/// Rows, inputs and the widths of three outputs of one packed weight.
class Packed {
 public:
  static constexpr std::int64_t kRows = 5, kIn = 4, kOut = 9;
  Linear op{.rows = kRows, .in = kIn, .out = kOut};
  Numbers x = Numbers::Random({DType::fp64, kRows* kIn}, 10);
  Numbers w = Numbers::Random({DType::fp64, kOut* kIn}, 11);
  Numbers b = Numbers::Random({DType::fp64, kOut}, 12);
  Numbers y[3] = {Numbers(LinearOutput(op, DType::fp64, 4)), Numbers(LinearOutput(op, DType::fp64, 2)),
                  Numbers(LinearOutput(op, DType::fp64, 3))};
  const Numbers dy[3] = {Numbers::Random(y[0].type(), 13), Numbers::Random(y[1].type(), 14),
                         Numbers::Random(y[2].type(), 15)};

  double Loss() {
    const Tensor outputs[] = {y[0], y[1], y[2]};
    LinearForward(op, x, w, ConstTensor(b), outputs);
    return Dot(dy[0], y[0]) + Dot(dy[1], y[1]) + Dot(dy[2], y[2]);
  }
};

TEST(Linear, PackedOutputsAreColumnsOfThePlainOne) {
  Packed packed;
  packed.Loss();
  Numbers plain(LinearOutput(packed.op, DType::fp64, Packed::kOut));
  const Tensor output[] = {plain};
  LinearForward(packed.op, packed.x, packed.w, ConstTensor(packed.b), output);
  for (std::int64_t row = 0; row < Packed::kRows; ++row) {
    EXPECT_NEAR(packed.y[0][row * 4 + 3], plain[row * 9 + 3], 1e-15);
    EXPECT_NEAR(packed.y[1][row * 2], plain[row * 9 + 4], 1e-15);
    EXPECT_NEAR(packed.y[2][row * 3 + 2], plain[row * 9 + 8], 1e-15);
  }
}

TEST(Linear, GradientsAreThoseOfFiniteDifferences) {
  Packed packed;
  const ConstTensor dy[] = {packed.dy[0], packed.dy[1], packed.dy[2]};
  Numbers dx(LinearInputGradientOutput(packed.op, DType::fp64));
  Numbers dw(LinearWeightGradientOutput(packed.op, DType::fp64)), db(LinearBiasGradientOutput(packed.op, DType::fp64));
  LinearInputGradient(packed.op, dy, packed.w, dx);
  LinearWeightGradient(packed.op, packed.x, dy, dw);
  LinearBiasGradient(packed.op, dy, db);
  const auto loss = [&] { return packed.Loss(); };
  ExpectGradient(loss, packed.x, dx);
  ExpectGradient(loss, packed.w, dw);
  ExpectGradient(loss, packed.b, db);
}

TEST(Linear, AccumulatedGradientsAreAddedInTheDTypeOfTheSum) {
  // dW = dY^T X = 3 * 0.5 on top of 1; in bf16 weights with an fp32 sum nothing is rounded.
  const Linear op{.rows = 1, .in = 1, .out = 1, .accumulate = true};
  Numbers dw(DType::fp32, {1 + 0x1p-20}), db(DType::fp32, {2 + 0x1p-20});
  const Numbers gradient(DType::bf16, {3.0});
  const ConstTensor dy[] = {gradient};
  LinearWeightGradient(op, Numbers(DType::bf16, {0.5}), dy, dw);
  LinearBiasGradient(op, dy, db);
  EXPECT_EQ(dw[0], 2.5 + 0x1p-20);
  EXPECT_EQ(db[0], 5 + 0x1p-20);
}

TEST(Linear, BiasIsAddedToRowsInPlace) {
  const Linear op{.rows = 2, .in = 0, .out = 3};
  Numbers x(DType::bf16, {1, 2, 3, 4, 5, 6});
  AddBias(op, x, Numbers(DType::bf16, {10, 20, 30}), x);
  EXPECT_EQ(x.values(), (std::vector<double>{11, 22, 33, 14, 25, 36}));
}

}  // namespace
}  // namespace tidemark::kernels::gemm_test
