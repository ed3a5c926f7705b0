// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_permutation.h"

#include <gtest/gtest.h>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::expert_permutation_test {
namespace {

// Three tokens: the first goes to experts 0 and 2, the second to 2 and 3, the third to 0 and 3; nobody to 1.
constexpr Permutation kOp{.tokens = 3, .experts = 4, .per_token = 2, .width = 2};
const std::vector<std::uint8_t> kMask = {1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1};

ConstTensor Mask() { return {{DType::u8, 12}, kMask.data()}; }

struct Moved {
  Numbers rows, row_weights, token_order, places, counts;

  Moved(const Numbers& tokens, const Numbers& weights, DType of_places) {
    const PermutationTypes types = PermutationOutputs(kOp, tokens.type().dtype, weights.type().dtype, of_places);
    rows = Numbers(types.rows);
    row_weights = Numbers(types.row_weights);
    token_order = Numbers(types.token_order);
    places = Numbers(types.places);
    counts = Numbers(types.counts);
    Permute(kOp, tokens, weights, Mask(), {rows, row_weights, token_order, places, counts});
  }
};

TEST(ExpertPermutation, SortsByExpertAndThenByToken) {
  const Numbers tokens(DType::bf16, {1, 2, 3, 4, 5, 6});
  const Numbers weights(DType::fp32, {.25, 0, .75, 0, 0, 0, .5, .5, .125, 0, 0, .875});
  const Moved moved(tokens, weights, DType::int64);
  EXPECT_EQ(moved.token_order.integers(), (std::vector<std::int64_t>{0, 2, 0, 1, 1, 2}));
  EXPECT_EQ(moved.rows.values(), (std::vector<double>{1, 2, 5, 6, 1, 2, 3, 4, 3, 4, 5, 6}));
  EXPECT_EQ(moved.row_weights.values(), (std::vector<double>{.25, .125, .75, .5, .5, .875}));
  EXPECT_EQ(moved.counts.integers(), (std::vector<std::int64_t>{2, 0, 2, 2}));
  // Expert by expert and token by token, so 3 * expert + token: first where the mask is 1.
  EXPECT_EQ(moved.places.integers(), (std::vector<std::int64_t>{0, 2, 6, 7, 10, 11, 1, 3, 4, 5, 8, 9}));
  EXPECT_EQ(Moved(tokens, weights, DType::u8).places.bytes(),
            (std::vector<unsigned char>{1, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1}));
}

TEST(ExpertPermutation, NeedsThePlacesOfItsOnesAlone) {
  Permutation ones = kOp;
  ones.ones_only = true;
  const Numbers tokens = Numbers::Random({DType::fp32, 6}, 1), weights = Numbers::Random({DType::fp32, 12}, 2);
  const PermutationTypes types = PermutationOutputs(ones, DType::fp32, DType::fp32, DType::int64);
  Numbers rows(types.rows), row_weights(types.row_weights), order(types.token_order), places(types.places),
      counts(types.counts);
  Permute(ones, tokens, weights, Mask(), {rows, row_weights, order, places, counts});
  EXPECT_EQ(places.integers(), (std::vector<std::int64_t>{0, 2, 6, 7, 10, 11}));
  const Moved all(tokens, weights, DType::int64);
  EXPECT_EQ(rows.values(), all.rows.values());
  Numbers d_tokens(tokens.type()), d_weights(weights.type()), d_tokens_of_all(tokens.type()),
      d_weights_of_all(weights.type());
  PermuteBackward(ones, rows, row_weights, order, places, d_tokens, d_weights);
  PermuteBackward(kOp, rows, row_weights, order, all.places, d_tokens_of_all, d_weights_of_all);
  EXPECT_EQ(d_tokens.values(), d_tokens_of_all.values());
  EXPECT_EQ(d_weights.values(), d_weights_of_all.values());
}

TEST(ExpertPermutation, ComesBackAsTheSumOfATokensRows) {
  const Numbers tokens(DType::fp32, {1, 2, 3, 4, 5, 6}), weights = Numbers::Random({DType::fp32, 12}, 1);
  Moved moved(tokens, weights, DType::int64);
  Numbers back(tokens.type());
  Unpermute(kOp, moved.rows, moved.token_order, back);
  EXPECT_EQ(back.values(), (std::vector<double>{2, 4, 6, 8, 10, 12})) << "twice each";
}

// Four experts on two ranks: the second token has none on the first, and each rank has three rows.
TEST(ExpertPermutation, OfGroupsIsTheWholeOneCutBetweenExperts) {
  const std::vector<std::uint8_t> mask_bytes = {1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1};
  const ConstTensor mask{{DType::u8, 12}, mask_bytes.data()};
  const Numbers tokens(DType::fp32, {1, 2, 3, 4, 5, 6}), weights = Numbers::Random({DType::fp32, 12}, 1);
  for (const DType of_places : {DType::int64, DType::u8}) {
    struct All {
      std::vector<double> rows, row_weights, sums, d_tokens, d_weights;
      std::vector<std::int64_t> token_order, counts;
    };
    const auto add = [](std::vector<double>& sum, const std::vector<double>& addend) {
      sum.resize(addend.size());
      for (std::size_t i = 0; i < addend.size(); ++i) {
        sum[i] += addend[i];
      }
    };
    const auto permuted = [&](std::int64_t groups) {
      All all;
      for (std::int64_t group = 0; group < groups; ++group) {
        const Permutation op{.tokens = 3, .experts = 4, .per_token = 2, .width = 2, .groups = groups, .group = group};
        const PermutationTypes types = PermutationOutputs(op, DType::fp32, DType::fp32, of_places);
        Numbers rows(types.rows), row_weights(types.row_weights), order(types.token_order), places(types.places),
            counts(types.counts), sum(tokens.type()), d_tokens(tokens.type()), d_weights(weights.type());
        Permute(op, tokens, weights, mask, {rows, row_weights, order, places, counts});
        Unpermute(op, rows, order, sum);
        PermuteBackward(op, rows, row_weights, order, places, d_tokens, d_weights);
        const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
        append(all.rows, rows.values());
        append(all.row_weights, row_weights.values());
        append(all.token_order, order.integers());
        append(all.counts, counts.integers());
        add(all.sums, sum.values());
        add(all.d_tokens, d_tokens.values());
        add(all.d_weights, d_weights.values());
      }
      return all;
    };
    const All whole = permuted(1), halves = permuted(2);
    EXPECT_EQ(halves.token_order, (std::vector<std::int64_t>{0, 2, 0, 1, 1, 2}));
    EXPECT_EQ(halves.token_order, whole.token_order);
    EXPECT_EQ(halves.counts, whole.counts);
    EXPECT_EQ(halves.rows, whole.rows);
    EXPECT_EQ(halves.row_weights, whole.row_weights);
    EXPECT_EQ(halves.sums, whole.sums);
    EXPECT_EQ(halves.d_tokens, whole.d_tokens);
    EXPECT_EQ(halves.d_weights, whole.d_weights);
  }
}

TEST(ExpertPermutation, SumsAreRoundedOnce) {
  // 256 + 1 is 256 in bf16.
  const Permutation op{.tokens = 1, .experts = 3, .per_token = 3, .width = 1};
  Numbers sum(TensorType{DType::bf16, 1});
  Unpermute(op, Numbers(DType::bf16, {256, 1, 1}), Numbers::Integers({0, 0, 0}), sum);
  EXPECT_EQ(sum[0], 258);
}

// Two senders with rows for three experts each, one row for each: by expert, and from each sender.
TEST(RowSort, ExchangesWhatComesFirst) {
  const RowSort op{.outer = 2, .inner = 3, .rows = 1, .width = 2};
  Numbers sorted(TensorType{DType::bf16, 12});
  SortRows(op, Numbers(DType::bf16, {0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51}), sorted);
  EXPECT_EQ(sorted.values(), (std::vector<double>{0, 1, 30, 31, 10, 11, 40, 41, 20, 21, 50, 51}));
}

TEST(RowSort, KeepsRowsOfOneSenderForOneExpertInTheirOrder) {
  const RowSort op{.outer = 2, .inner = 2, .rows = 2, .width = 1};
  Numbers sorted(TensorType{DType::fp32, 8});
  SortRows(op, Numbers(DType::fp32, {0, 1, 10, 11, 20, 21, 30, 31}), sorted);
  EXPECT_EQ(sorted.values(), (std::vector<double>{0, 1, 20, 21, 10, 11, 30, 31}));
}

TEST(RowSort, TellsWhichRowComesToEachPlace) {
  Numbers order(TensorType{DType::int64, 6});
  SortOrder({.outer = 2, .inner = 3, .rows = 1, .width = 1}, order);
  EXPECT_EQ(order.integers(), (std::vector<std::int64_t>{0, 3, 1, 4, 2, 5}));
  Numbers of_two(TensorType{DType::int64, 8});
  SortOrder({.outer = 2, .inner = 2, .rows = 2, .width = 1}, of_two);
  EXPECT_EQ(of_two.integers(), (std::vector<std::int64_t>{0, 1, 4, 5, 2, 3, 6, 7}));
}

TEST(RowOrder, GathersRowsAndPutsThemBack) {
  const Numbers order = Numbers::Integers({2, 0, 1});
  Numbers gathered(TensorType{DType::bf16, 6}), back(TensorType{DType::bf16, 6});
  GatherRows(Numbers(DType::bf16, {0, 1, 10, 11, 20, 21}), order, gathered);
  EXPECT_EQ(gathered.values(), (std::vector<double>{20, 21, 0, 1, 10, 11}));
  ScatterRows(gathered, order, back);
  EXPECT_EQ(back.values(), (std::vector<double>{0, 1, 10, 11, 20, 21}));
}

TEST(ExpertCounts, AreAsManyRowsEach) {
  Numbers counts(TensorType{DType::int64, 3});
  CountEvenly(12, counts);
  EXPECT_EQ(counts.integers(), (std::vector<std::int64_t>{4, 4, 4}));
}

TEST(ExpertPermutation, GradientsAreThoseOfFiniteDifferences) {
  for (const DType places : {DType::int64, DType::u8}) {
    Numbers tokens = Numbers::Random({DType::fp64, 6}, 1), weights = Numbers::Random({DType::fp64, 12}, 2);
    const Numbers d_rows = Numbers::Random({DType::fp64, 12}, 3), d_row_weights = Numbers::Random({DType::fp64, 6}, 4);
    const auto loss = [&] {
      const Moved moved(tokens, weights, places);
      return Dot(d_rows, moved.rows) + Dot(d_row_weights, moved.row_weights);
    };
    const Moved moved(tokens, weights, places);
    Numbers d_tokens(tokens.type()), d_weights(weights.type());
    PermuteBackward(kOp, d_rows, d_row_weights, moved.token_order, moved.places, d_tokens, d_weights);
    ExpectGradient(loss, tokens, d_tokens);
    ExpectGradient(loss, weights, d_weights);
  }
}

TEST(ExpertPermutation, GradientsOfSumsAreThoseOfFiniteDifferences) {
  Numbers rows = Numbers::Random({DType::fp64, 12}, 1), sum(TensorType{DType::fp64, 6}), gradient(rows.type());
  const Numbers order = Numbers::Integers({0, 2, 0, 1, 1, 2}), dy = Numbers::Random(sum.type(), 2);
  UnpermuteBackward(kOp, dy, order, gradient);
  ExpectGradient(
      [&] {
        Unpermute(kOp, rows, order, sum);
        return Dot(dy, sum);
      },
      rows, gradient);
}

}  // namespace
}  // namespace tidemark::kernels::expert_permutation_test
