// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::rope_test {
namespace {

TEST(Rope, TurnsEachPairByItsAngle) {
  const Rope op{
      .shape = {.batch = 2, .sequence = 70, .heads = 2, .kv_heads = 1, .head_size = 6}, .theta = 100, .places = {3, 7}};
  const Numbers q = Numbers::Random({DType::fp64, op.shape.query_elements()}, 1);
  const Numbers k = Numbers::Random({DType::fp64, op.shape.key_elements()}, 2);
  Numbers q_out(RopeOutputs(op, DType::fp64).q), k_out(RopeOutputs(op, DType::fp64).k);
  RopeForward(op, q, k, {}, q_out, k_out);
  const auto expect_turned = [&](const Numbers& x, const Numbers& y, std::int64_t heads) {
    for (std::int64_t t = 0; t < op.shape.tokens(); ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < 3; ++i) {
          const double angle =
              static_cast<double>(t % 70 + (t % 70 < 35 ? 3 : 10)) * std::pow(100, -2.0 * static_cast<double>(i) / 6);
          const std::int64_t at = (t * heads + h) * 6 + i;
          ASSERT_NEAR(y[at], x[at] * std::cos(angle) - x[at + 3] * std::sin(angle), 1e-13);
          ASSERT_NEAR(y[at + 3], x[at + 3] * std::cos(angle) + x[at] * std::sin(angle), 1e-13);
        }
      }
    }
  };
  expect_turned(q, q_out, 2);
  expect_turned(k, k_out, 1);
}

// Of heads of which the last part alone is turned, that part is as a head by itself, and the rest as it was.
TEST(Rope, TurnsTheLastPartOfEachHead) {
  constexpr std::int64_t kKept = 3, kTurned = 4, kHead = kKept + kTurned;
  const HeadShape whole{.batch = 2, .sequence = 40, .heads = 3, .kv_heads = 1, .head_size = kHead};
  const Rope op{.shape = whole, .turned = kTurned, .theta = 50, .places = {2, 9}};
  Rope of_part{.shape = whole, .theta = 50, .places = {2, 9}};
  of_part.shape.head_size = kTurned;
  for (const bool backward : {false, true}) {
    const auto run = backward ? &RopeBackward : &RopeForward;
    for (const DType dtype : {DType::fp64, DType::bf16}) {
      const Numbers q = Numbers::Random({dtype, whole.query_elements()}, 1);
      const Numbers k = Numbers::Random({dtype, whole.key_elements()}, 2);
      const auto parts = [](const Numbers& heads) {
        Numbers part(TensorType{heads.type().dtype, heads.type().elements / kHead * kTurned});
        for (std::int64_t head = 0; head < heads.type().elements / kHead; ++head) {
          Copy(Slice(ConstTensor(heads), head * kHead + kKept, kTurned), Slice(Tensor(part), head * kTurned, kTurned));
        }
        return part;
      };
      Numbers q_part = parts(q), k_part = parts(k);
      run(of_part, q_part, k_part, {}, q_part, k_part);
      Numbers q_new(q.type()), k_new(k.type()), q_there = q, k_there = k;
      run(op, q, k, {}, q_new, k_new);
      run(op, q_there, k_there, {}, q_there, k_there);
      EXPECT_EQ(q_new.bytes(), q_there.bytes());
      EXPECT_EQ(k_new.bytes(), k_there.bytes());
      EXPECT_EQ(parts(q_new).bytes(), q_part.bytes());
      EXPECT_EQ(parts(k_new).bytes(), k_part.bytes());
      for (std::int64_t i = 0; i < q.type().elements; ++i) {
        if (i % kHead < kKept) {
          ASSERT_EQ(q_new[i], q[i]);
        }
      }
    }
  }
}

TEST(Rope, BackwardTurnsBackInPlaceInEveryDType) {
  const Rope op{.shape = {.batch = 1, .sequence = 100, .heads = 3, .kv_heads = 1, .head_size = 4}};
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    const Numbers q = Numbers::Random({dtype, op.shape.query_elements()}, 1);
    const Numbers k = Numbers::Random({dtype, op.shape.key_elements()}, 2);
    Numbers q2 = q, k2 = k;
    RopeForward(op, q2, k2, {}, q2, k2);
    EXPECT_NE(q2.bytes(), q.bytes());
    // A rotation's transpose is its inverse, and its gradient is the transpose.
    RopeBackward(op, q2, k2, {}, q2, k2);
    // Two sums of two products, values up to sqrt 2; sines and cosines of fp64 lose 2 roundings for each of 32 steps.
    const double bound = 6 * UnitRoundoff(dtype) + 64 * 0x1p-53;
    ExpectNear(q2, q.values(), bound);
    ExpectNear(k2, k.values(), bound);
  }
}

TEST(Rope, ReadsAPackedProjection) {
  const Rope op{.shape = {.batch = 1, .sequence = 3, .heads = 2, .kv_heads = 1, .head_size = 2}};
  const Numbers packed = Numbers::Random({DType::bf16, op.shape.packed_elements()}, 1);
  Numbers q(RopeOutputs(op, DType::bf16).q), k(RopeOutputs(op, DType::bf16).k);
  for (std::int64_t t = 0; t < 3; ++t) {
    Copy(Slice(ConstTensor(packed), t * 8, 4), Slice(Tensor(q), t * 4, 4));
    Copy(Slice(ConstTensor(packed), t * 8 + 4, 2), Slice(Tensor(k), t * 2, 2));
  }
  RopeForward(op, q, k, {}, q, k);
  Numbers q2(q.type()), k2(k.type());
  RopeForward(op, packed, packed, {}, q2, k2);
  EXPECT_EQ(q2.bytes(), q.bytes());
  EXPECT_EQ(k2.bytes(), k.bytes());
}

}  // namespace
}  // namespace tidemark::kernels::rope_test
