// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_gate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::row_gate_test {
namespace {

constexpr RowGate kOp{.rows = 3, .in = 4, .width = 5};

struct Case {
  Numbers z, v, x, y, gate, dy;
  explicit Case(DType dtype)
      : z(Numbers::Random({dtype, kOp.rows * kOp.in}, 1)),
        v(Numbers::Random({dtype, kOp.in}, 2)),
        x(Numbers::Random(RowGateOutputs(kOp, dtype).output, 3)),
        y(x.type()),
        gate(RowGateOutputs(kOp, dtype).gate),
        dy(Numbers::Random(x.type(), 4)) {
    Forward();
  }
  void Forward() { RowGateForward(kOp, z, v, x, y, gate); }
};

TEST(RowGate, IsTheDefinitionOfTheGateAsItIsStored) {
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    const Case c(dtype);
    for (std::int64_t row = 0; row < kOp.rows; ++row) {
      double score = 0;
      for (std::int64_t i = 0; i < kOp.in; ++i) {
        score += c.z[row * kOp.in + i] * c.v[i];
      }
      EXPECT_NEAR(c.gate[row], 1 / (1 + std::exp(-score)), 2 * UnitRoundoff(dtype));
      for (std::int64_t i = row * kOp.width; i < (row + 1) * kOp.width; ++i) {
        EXPECT_NEAR(c.y[i], c.gate[row] * c.x[i], UnitRoundoff(dtype) * std::abs(c.y[i]) * 1.01);
      }
    }
  }
}

TEST(RowGate, GradientsAreThoseOfFiniteDifferences) {
  Case c(DType::fp64);
  Numbers dx(c.x.type()), dz(c.z.type()), products(c.x.type()), scores(c.gate.type()), dv(c.v.type());
  RowGateBackward(kOp, c.dy, {c.z, c.v, c.x, c.gate}, {dx, dz, products, scores, dv});
  const auto loss = [&] {
    c.Forward();
    return Dot(c.dy, c.y);
  };
  ExpectGradient(loss, c.x, dx);
  ExpectGradient(loss, c.z, dz);
  ExpectGradient(loss, c.v, dv);
  c.Forward();
  EXPECT_EQ(products[7], c.dy[7] * c.x[7]);
}

TEST(RowGate, AddsToTheGradientThatThereIs) {
  const Case c(DType::fp64);
  Numbers dx(c.x.type()), dz(c.z.type()), products(c.x.type()), scores(c.gate.type()), dv(c.v.type());
  Numbers sum(DType::fp64, {1, 2, 3, 4});
  RowGateBackward(kOp, c.dy, {c.z, c.v, c.x, c.gate}, {dx, dz, products, scores, dv});
  RowGate added = kOp;
  added.accumulate = true;
  RowGateBackward(added, c.dy, {c.z, c.v, c.x, c.gate}, {dx, dz, products, scores, sum});
  for (std::int64_t i = 0; i < kOp.in; ++i) {
    EXPECT_NEAR(sum[i], dv[i] + static_cast<double>(i + 1), 1e-15);
  }
}

}  // namespace
}  // namespace tidemark::kernels::row_gate_test
