// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::embedding_test {
namespace {

TEST(Embedding, LooksRowsUp) {
  const Embedding op{.tokens = 3, .width = 2, .vocabulary = 3};
  Numbers rows(EmbeddingOutput(op, DType::bf16));
  EmbeddingForward(op, Numbers::Integers({2, 0, 2}), Numbers(DType::bf16, {1, 2, 3, 4, 5, 6}), rows);
  EXPECT_EQ(rows.values(), (std::vector<double>{5, 6, 1, 2, 5, 6}));
}

TEST(Embedding, PartsOfAVocabularyAddUpToTheWhole) {
  const Numbers ids = Numbers::Integers({3, 1, 0, 2, 3});
  const Numbers table = Numbers::Random({DType::fp64, 8}, 1), gradient = Numbers::Random({DType::fp64, 10}, 2);
  const Embedding whole{.tokens = 5, .width = 2, .vocabulary = 4};
  Numbers expected(EmbeddingOutput(whole, DType::fp64)), expected_gradient(table.type());
  EmbeddingForward(whole, ids, table, expected);
  EmbeddingBackward(whole, ids, gradient, expected_gradient);
  Numbers sum(expected.type());
  Zero(sum);
  for (const std::int64_t rank : {0, 1}) {
    const Embedding part{.tokens = 5, .width = 2, .vocabulary = 2, .first_row = 2 * rank};
    Numbers rows(sum.type()), part_gradient(TensorType{DType::fp64, 4});
    EmbeddingForward(part, ids, Slice(ConstTensor(table), 4 * rank, 4), rows);
    Accumulate(rows, sum);
    EmbeddingBackward(part, ids, gradient, part_gradient);
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(part_gradient[i], expected_gradient[4 * rank + i]);
    }
  }
  EXPECT_EQ(sum.bytes(), expected.bytes());
}

TEST(Embedding, GradientIsThatOfFiniteDifferences) {
  const Embedding op{.tokens = 6, .width = 3, .vocabulary = 5};
  const Numbers ids = Numbers::Integers({4, 1, 4, 0, 4, 1});
  Numbers table = Numbers::Random({DType::fp64, 15}, 1), rows(EmbeddingOutput(op, DType::fp64));
  const Numbers dy = Numbers::Random(rows.type(), 2);
  Numbers gradient(EmbeddingGradientOutput(op, DType::fp64));
  EmbeddingBackward(op, ids, dy, gradient);
  ExpectGradient(
      [&] {
        EmbeddingForward(op, ids, table, rows);
        return Dot(dy, rows);
      },
      table, gradient);
}

TEST(Embedding, GradientsOfOneRowAreSummedBeforeTheyAreRounded) {
  const Embedding op{.tokens = 3, .width = 1, .vocabulary = 2};
  const Numbers ids = Numbers::Integers({1, 1, 1}), dy(DType::bf16, {256, 1, 1});
  Numbers gradient(EmbeddingGradientOutput(op, DType::bf16));
  EmbeddingBackward(op, ids, dy, gradient);
  EXPECT_EQ(gradient.values(), (std::vector<double>{0, 258}));  // 256 + 1 is 256 in bf16
  Embedding added = op;
  added.accumulate = true;
  Numbers sum(DType::fp32, {7, 1});
  EmbeddingBackward(added, ids, dy, sum);
  EXPECT_EQ(sum.values(), (std::vector<double>{7, 259}));
}

TEST(Positions, RowsOfEachPlaceAreAdded) {
  // Rows 2 to 4 of 2 sequences of 3: places 2, 0, 1.
  const Positions op{.rows = 3, .width = 1, .sequence = 3, .positions = 4, .first_row = 2};
  Numbers y(PositionsOutput(op, DType::fp32));
  PositionsForward(op, Numbers(DType::fp32, {1, 2, 3}), Numbers(DType::fp32, {10, 20, 30, 40}), y);
  EXPECT_EQ(y.values(), (std::vector<double>{31, 12, 23}));
  Numbers gradient(PositionsGradientOutput(op, DType::fp32));
  PositionsBackward(op, Numbers(DType::fp32, {1, 2, 3}), gradient);
  EXPECT_EQ(gradient.values(), (std::vector<double>{2, 3, 1, 0}));
}

TEST(Positions, OfAStretchFromTheFrontAndOneFromTheBackAreThoseOfTheWholeSequence) {
  // Two sequences of 8, of which this rank has the places 1, 2 and 5, 6 (of 2 ranks with stretches of 2 it would be 2,
  // 3 and 4, 5: without a gap).
  const Positions op{.rows = 8, .width = 1, .sequence = 4, .positions = 8, .places = {1, 2}};
  Numbers y(PositionsOutput(op, DType::fp32)), gradient(PositionsGradientOutput(op, DType::fp32));
  PositionsForward(op, Numbers(DType::fp32, {1, 2, 3, 4, 5, 6, 7, 8}),
                   Numbers(DType::fp32, {0, 10, 20, 30, 40, 50, 60, 70}), y);
  EXPECT_EQ(y.values(), (std::vector<double>{11, 22, 53, 64, 15, 26, 57, 68}));
  PositionsBackward(op, Numbers(DType::fp32, {1, 2, 3, 4, 5, 6, 7, 8}), gradient);
  EXPECT_EQ(gradient.values(), (std::vector<double>{0, 6, 8, 0, 0, 10, 12, 0}));
}

TEST(Positions, GradientIsThatOfFiniteDifferences) {
  const Positions op{.rows = 6, .width = 2, .sequence = 3, .positions = 3};
  const Numbers x = Numbers::Random({DType::fp64, 12}, 1);
  Numbers table = Numbers::Random({DType::fp64, 6}, 2), y(PositionsOutput(op, DType::fp64));
  const Numbers dy = Numbers::Random(y.type(), 3);
  Numbers gradient(PositionsGradientOutput(op, DType::fp64));
  PositionsBackward(op, dy, gradient);
  ExpectGradient(
      [&] {
        PositionsForward(op, x, table, y);
        return Dot(dy, y);
      },
      table, gradient);
}

}  // namespace
}  // namespace tidemark::kernels::embedding_test
