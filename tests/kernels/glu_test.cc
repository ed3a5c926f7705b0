// SPDX-License-Identifier: Apache-2.0
#include "kernels/glu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::glu_test {
namespace {

constexpr Glu kOp{.rows = 3, .width = 7};

double Silu(double x) { return x / (1 + std::exp(-x)); }

/// Gate and up side by side.
Numbers Pack(const Numbers& gate, const Numbers& up) {
  Numbers packed(TensorType{gate.type().dtype, 2 * kOp.rows * kOp.width});
  for (std::int64_t row = 0; row < kOp.rows; ++row) {
    const std::int64_t from = row * kOp.width, to = 2 * from;
    Copy(Slice(ConstTensor(gate), from, kOp.width), Slice(Tensor(packed), to, kOp.width));
    Copy(Slice(ConstTensor(up), from, kOp.width), Slice(Tensor(packed), to + kOp.width, kOp.width));
  }
  return packed;
}

struct Case {
  Numbers gate, up, y, dy;
  explicit Case(DType dtype)
      : gate(Numbers::Random(GluOutput(kOp, dtype), 1)),
        up(Numbers::Random(GluOutput(kOp, dtype), 2)),
        y(GluOutput(kOp, dtype)),
        dy(Numbers::Random(GluOutput(kOp, dtype), 3)) {
    Scale(4, gate);
  }
};

TEST(Glu, IsTheDefinitionInEveryDType) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    Case c(dtype);
    GluForward(kOp, c.gate, c.up, c.y);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < kOp.rows * kOp.width; ++i) {
      expected.push_back(Silu(c.gate[i]) * c.up[i]);
    }
    const double compute = dtype == DType::fp64 ? 0x1p-53 : 0x1p-24;  // an exponential and four operations
    ExpectNear(c.y, expected,
               [&](std::size_t i) { return (UnitRoundoff(dtype) + 10 * compute) * 1.01 * std::abs(expected[i]); });
  }
}

TEST(Glu, GradientsAreThoseOfFiniteDifferences) {
  Case c(DType::fp64);
  Numbers d_gate(c.gate.type()), d_up(c.up.type());
  GluBackward(kOp, c.gate, c.up, c.dy, d_gate, d_up);
  const auto loss = [&] {
    GluForward(kOp, c.gate, c.up, c.y);
    return Dot(c.dy, c.y);
  };
  ExpectGradient(loss, c.gate, d_gate);
  ExpectGradient(loss, c.up, d_up);
}

TEST(Glu, SingleOperationsMakeTheSameForwardAndBackward) {
  Case c(DType::fp64);
  Numbers silu(c.y.type()), y(c.y.type()), d_silu(c.y.type());
  Numbers d_gate(c.y.type()), d_up(c.y.type()), d_gate2(c.y.type()), d_up2(c.y.type());
  GluForward(kOp, c.gate, c.up, c.y);
  GluBackward(kOp, c.gate, c.up, c.dy, d_gate, d_up);
  SiluForward(kOp, c.gate, silu);
  ProductForward(kOp, silu, c.up, y);
  ProductBackward(kOp, c.dy, silu, c.up, d_silu, d_up2);
  SiluBackward(kOp, d_silu, c.gate, d_gate2);
  ExpectNear(y, c.y.values(), 1e-15);
  ExpectNear(d_gate2, d_gate.values(), 1e-15);
  ExpectNear(d_up2, d_up.values(), 1e-15);
}

TEST(Glu, PackedOperandsAreReadAndWrittenByHalves) {
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    Case c(dtype);
    const Numbers packed = Pack(c.gate, c.up);
    Numbers y(c.y.type()), d_gate(c.y.type()), d_up(c.y.type()), silu(c.y.type()), d_silu(c.y.type());
    GluForward(kOp, c.gate, c.up, c.y);
    GluForward(kOp, packed, packed, y);
    EXPECT_EQ(y.bytes(), c.y.bytes());
    Numbers d_packed(packed.type());
    GluBackward(kOp, c.gate, c.up, c.dy, d_gate, d_up);
    GluBackward(kOp, packed, packed, c.dy, d_packed, d_packed);
    EXPECT_EQ(d_packed.bytes(), Pack(d_gate, d_up).bytes());

    SiluForward(kOp, c.gate, silu);
    ProductForward(kOp, silu, c.up, c.y);
    Numbers silu2(c.y.type());
    SiluForward(kOp, packed, silu2);
    ProductForward(kOp, silu2, packed, y);
    EXPECT_EQ(y.bytes(), c.y.bytes());
    ProductBackward(kOp, c.dy, silu, c.up, d_silu, d_up);
    SiluBackward(kOp, d_silu, c.gate, d_gate);
    Numbers d_packed2(packed.type());
    ProductBackward(kOp, c.dy, silu, packed, d_silu, d_packed2);
    SiluBackward(kOp, d_silu, packed, d_packed2);
    EXPECT_EQ(d_packed2.bytes(), Pack(d_gate, d_up).bytes());
    Numbers joined(packed.type());
    JoinHalves(kOp, d_gate, d_up, joined);
    EXPECT_EQ(joined.bytes(), Pack(d_gate, d_up).bytes());
  }
}

TEST(Glu, SaturatesWithoutOverflow) {
  Numbers gate(DType::fp32, std::vector<double>(21, -200)), y(gate.type());
  const Numbers up(DType::fp32, std::vector<double>(21, 1));
  GluForward(kOp, gate, up, y);
  EXPECT_EQ(y[0], 0);  // -200 / (1 + e^200), and e^200 is infinite in fp32
  gate.Set(0, 200);
  GluForward(kOp, gate, up, y);
  EXPECT_EQ(y[0], 200);
}

}  // namespace
}  // namespace tidemark::kernels::glu_test
