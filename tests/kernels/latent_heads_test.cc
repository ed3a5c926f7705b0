// SPDX-License-Identifier: Apache-2.0
#include "kernels/latent_heads.h"

#include <gtest/gtest.h>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::latent_heads_test {
namespace {

// Two tokens with two heads: two elements of a key of its own, one that is shared, a value of three.
constexpr LatentHeads kOp{.tokens = 2, .heads = 2, .own = 2, .shared = 1, .values = 3};

TEST(LatentHeads, JoinsWhatIsAHeadsOwnWithWhatAllShare) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    const Numbers projected(dtype, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
    const Numbers common(dtype, {-1, -2});
    Numbers keys(TensorType{dtype, kOp.key_elements()}), values(TensorType{dtype, kOp.value_elements()});
    JoinKeys(kOp, projected, common, keys);
    CopyValues(kOp, projected, values);
    EXPECT_EQ(keys.values(), (std::vector<double>{1, 2, -1, 6, 7, -1, 11, 12, -2, 16, 17, -2}));
    EXPECT_EQ(values.values(), (std::vector<double>{3, 4, 5, 8, 9, 10, 13, 14, 15, 18, 19, 20}));
  }
}

TEST(LatentHeads, GradientsOfWhatIsSharedAreSumsOverHeads) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    const Numbers d_keys(dtype, {1, 2, 10, 3, 4, 20, 5, 6, 30, 7, 8, 40});
    const Numbers d_values(dtype, {-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12});
    Numbers d_projected(TensorType{dtype, kOp.projected_elements()}), d_common(TensorType{dtype, 2});
    SplitKeyGradients(kOp, d_keys, d_values, d_projected, d_common);
    EXPECT_EQ(d_projected.values(),
              (std::vector<double>{1, 2, -1, -2, -3, 3, 4, -4, -5, -6, 5, 6, -7, -8, -9, 7, 8, -10, -11, -12}));
    EXPECT_EQ(d_common.values(), (std::vector<double>{30, 70}));
  }
}

TEST(LatentHeads, GradientsAreThoseOfFiniteDifferences) {
  Numbers projected = Numbers::Random({DType::fp64, kOp.projected_elements()}, 1);
  Numbers common = Numbers::Random({DType::fp64, kOp.common_elements()}, 2);
  const Numbers d_keys = Numbers::Random({DType::fp64, kOp.key_elements()}, 3);
  const Numbers d_values = Numbers::Random({DType::fp64, kOp.value_elements()}, 4);
  Numbers keys(d_keys.type()), values(d_values.type()), d_projected(projected.type()), d_common(common.type());
  SplitKeyGradients(kOp, d_keys, d_values, d_projected, d_common);
  const auto loss = [&] {
    JoinKeys(kOp, projected, common, keys);
    CopyValues(kOp, projected, values);
    return Dot(d_keys, keys) + Dot(d_values, values);
  };
  ExpectGradient(loss, projected, d_projected);
  ExpectGradient(loss, common, d_common);
}

}  // namespace
}  // namespace tidemark::kernels::latent_heads_test
