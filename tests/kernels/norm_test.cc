// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::norm_test {
namespace {

/// A norm with all its operands.
struct Case {
  Norm op;
  Numbers x, w, b, y, rstd, mean;

  Case(const Norm& norm, DType dtype)
      : op(norm),
        x(Numbers::Random({dtype, op.rows * op.width}, 1)),
        w(Numbers::Random({dtype, op.width}, 2)),
        b(Numbers::Random({dtype, op.width}, 3)),
        y(NormOutputs(op, dtype).output),
        rstd(NormOutputs(op, dtype).rstd),
        mean(NormOutputs(op, dtype).mean) {}

  std::optional<ConstTensor> bias() const { return op.layer_norm ? std::optional<ConstTensor>(b) : std::nullopt; }
  std::optional<ConstTensor> saved_mean() const {
    return op.layer_norm ? std::optional<ConstTensor>(mean) : std::nullopt;
  }
  void Forward() { NormForward(op, x, w, bias(), y, rstd, op.layer_norm ? std::optional<Tensor>(mean) : std::nullopt); }
};

/// y of the definition, from the operands as they are stored.
std::vector<double> Naive(const Case& c) {
  std::vector<double> y;
  for (std::int64_t row = 0; row < c.op.rows; ++row) {
    const auto x = [&](std::int64_t i) { return c.x[row * c.op.width + i]; };
    double mean = 0, square = 0;
    for (std::int64_t i = 0; i < c.op.width; ++i) {
      mean += c.op.layer_norm ? x(i) / static_cast<double>(c.op.width) : 0;
    }
    for (std::int64_t i = 0; i < c.op.width; ++i) {
      square += (x(i) - mean) * (x(i) - mean) / static_cast<double>(c.op.width);
    }
    for (std::int64_t i = 0; i < c.op.width; ++i) {
      y.push_back((x(i) - mean) / std::sqrt(square + c.op.eps) * c.w[i] + (c.op.layer_norm ? c.b[i] : 0));
    }
  }
  return y;
}

class BothNorms : public testing::TestWithParam<bool> {};

TEST_P(BothNorms, AreTheDefinitionWithinTheirRoundings) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    for (const std::int64_t width : {1, 3, 32, 67, 200}) {
      Case c({.rows = 4, .width = width, .layer_norm = GetParam(), .eps = 1e-3}, dtype);
      c.Forward();
      // A sum of n squares, a root and a handful of products, on values up to sqrt(n) + 1: n + 10 roundings of each.
      const double compute = dtype == DType::fp64 ? 0x1p-53 : 0x1p-24, n = static_cast<double>(width);
      const std::vector<double> expected = Naive(c);
      ExpectNear(c.y, expected, [&](std::size_t i) {
        return UnitRoundoff(dtype) * std::abs(expected[i]) * 1.01 + (n + 10) * compute * (std::sqrt(n) + 1) * 4;
      });
      EXPECT_EQ(c.rstd.type(), (TensorType{dtype == DType::fp64 ? DType::fp64 : DType::fp32, 4}));
    }
  }
}

TEST_P(BothNorms, GradientsAreThoseOfFiniteDifferences) {
  Case c({.rows = 3, .width = 5, .layer_norm = GetParam(), .eps = 1e-2}, DType::fp64);
  const Numbers dy = Numbers::Random(c.y.type(), 4);
  const auto loss = [&] {
    c.Forward();
    return Dot(dy, c.y);
  };
  loss();
  Numbers dx(NormInputGradientOutput(c.op, DType::fp64));
  Numbers dw(NormWeightGradientOutput(c.op, DType::fp64)), db(dw.type());
  NormBackward(c.op, dy, c.x, c.rstd, c.saved_mean(), c.w, dx, Tensor(dw),
               c.op.layer_norm ? std::optional<Tensor>(db) : std::nullopt);
  ExpectGradient(loss, c.x, dx);
  ExpectGradient(loss, c.w, dw);
  if (c.op.layer_norm) {
    ExpectGradient(loss, c.b, db);
  }
}

TEST_P(BothNorms, NarrowGradientsAreThoseOfFp64WithinTheirRoundings) {
  const Norm op{.rows = 7, .width = 96, .layer_norm = GetParam(), .eps = 1e-2};
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Case narrow(op, dtype), wide(op, DType::fp64);
    wide.x = narrow.x.As(DType::fp64);
    wide.w = narrow.w.As(DType::fp64);
    narrow.Forward();
    wide.Forward();
    const Numbers dy = Numbers::Random(narrow.y.type(), 5);
    const auto gradients = [&](Case& c, const Numbers& from) {
      std::vector<Numbers> results(2);
      results[0] = Numbers(NormInputGradientOutput(op, c.x.type().dtype));
      results[1] = Numbers(NormWeightGradientOutput(op, c.x.type().dtype));
      NormBackward(op, from, c.x, c.rstd, c.saved_mean(), c.w, results[0], Tensor(results[1]), std::nullopt);
      return results;
    };
    const std::vector<Numbers> result = gradients(narrow, dy), truth = gradients(wide, dy.As(DType::fp64));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<double> expected = truth[i].values();
      // Values are at most about 5, sums of 96 or 7 terms.
      ExpectNear(result[i], expected, [&](std::size_t j) {
        return UnitRoundoff(dtype) * std::abs(expected[j]) * 1.01 + (96 + 10) * 0x1p-24 * 5;
      });
    }
  }
}

TEST_P(BothNorms, WeightGradientsAreAddedWhereAsked) {
  Case c({.rows = 3, .width = 5, .layer_norm = GetParam()}, DType::fp64);
  c.Forward();
  const Numbers dy = Numbers::Random(c.y.type(), 4);
  Numbers dx(NormInputGradientOutput(c.op, DType::fp64)), once(NormWeightGradientOutput(c.op, DType::fp64));
  NormBackward(c.op, dy, c.x, c.rstd, c.saved_mean(), c.w, dx, Tensor(once), std::nullopt);
  Numbers sum = once;
  c.op.accumulate = true;
  NormBackward(c.op, dy, c.x, c.rstd, c.saved_mean(), c.w, dx, Tensor(sum), std::nullopt);
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(sum[i], 2 * once[i], 1e-14);
  }
}

TEST_P(BothNorms, ANaNStaysInItsRow) {
  Case c({.rows = 2, .width = 40, .layer_norm = GetParam()}, DType::bf16);
  c.x.Set(7, std::numeric_limits<double>::quiet_NaN());
  c.Forward();
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_TRUE(std::isnan(c.y[i]) && std::isfinite(c.y[40 + i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Norm, BothNorms, testing::Bool());

}  // namespace
}  // namespace tidemark::kernels::norm_test
