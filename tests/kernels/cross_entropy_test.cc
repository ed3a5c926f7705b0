// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::cross_entropy_test {
namespace {

constexpr std::int64_t kIgnored = -100;

/// Loss and gradient of the definition, over all columns.
struct Naive {
  double loss = 0;
  std::vector<double> gradient;

  Naive(const CrossEntropy& op, const Numbers& logits, const std::vector<std::int64_t>& labels) {
    const double divisor = op.divisor == 0 ? static_cast<double>(op.rows) : op.divisor;
    for (std::int64_t row = 0; row < op.rows; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < op.columns; ++i) {
        sum += std::exp(logits[row * op.columns + i]);
      }
      const std::int64_t label = labels[static_cast<std::size_t>(row)];
      const bool counts = label >= 0;
      loss += counts ? (std::log(sum) - logits[row * op.columns + label]) / divisor : 0;
      for (std::int64_t i = 0; i < op.columns; ++i) {
        const double softmax = std::exp(logits[row * op.columns + i]) / sum;
        gradient.push_back(counts ? (softmax - (i == label ? 1 : 0)) * op.scale / divisor : 0);
      }
    }
  }
};

struct Result {
  Numbers loss, gradient;
};

/// One rank's columns of a matrix, and back.
Numbers Columns(const CrossEntropy& whole, const Numbers& matrix, std::int64_t first, std::int64_t columns) {
  Numbers part(TensorType{matrix.type().dtype, whole.rows * columns});
  for (std::int64_t row = 0; row < whole.rows; ++row) {
    Copy(Slice(ConstTensor(matrix), row * whole.columns + first, columns), Slice(Tensor(part), row * columns, columns));
  }
  return part;
}
void SetColumns(const CrossEntropy& whole, const Numbers& part, std::int64_t first, std::int64_t columns,
                Numbers& matrix) {
  for (std::int64_t row = 0; row < whole.rows; ++row) {
    Copy(Slice(ConstTensor(part), row * columns, columns), Slice(Tensor(matrix), row * whole.columns + first, columns));
  }
}

/// What an all-reduce does to a statistic of each row.
void Reduce(std::vector<Numbers>& parts, bool largest) {
  for (std::int64_t i = 0; i < parts.front().type().elements; ++i) {
    double value = parts.front()[i];
    for (std::size_t rank = 1; rank < parts.size(); ++rank) {
      value = largest ? std::max(value, parts[rank][i]) : value + parts[rank][i];
    }
    for (Numbers& part : parts) {
      part.Set(i, value);
    }
  }
}

/// Everything of the ranks that share a vocabulary.
struct Ranks {
  std::vector<CrossEntropy> op;
  std::vector<Numbers> logits, row_max, row_sum, target, saved;

  Ranks(const CrossEntropy& whole, const Numbers& all, std::int64_t ranks) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      CrossEntropy part = whole;
      part.columns = whole.columns / ranks;
      part.first_column = rank * part.columns;
      op.push_back(part);
      const DType dtype = all.type().dtype;
      logits.push_back(Columns(whole, all, part.first_column, part.columns));
      for (std::vector<Numbers>* rows : {&row_max, &row_sum, &target}) {
        rows->emplace_back(CrossEntropyRows(part, dtype));
      }
      saved.emplace_back(CrossEntropyMatrix(part, dtype));
      RowMax(part, logits.back(), row_max.back());
    }
    Reduce(row_max, true);
  }
  std::size_t count() const { return op.size(); }
};

/// The log-softmax form. The vocabulary lies on `ranks` ranks, whose statistics are reduced here.
Result LogSoftmaxOf(const CrossEntropy& whole, const Numbers& logits, const Numbers& labels, std::int64_t ranks) {
  Ranks r(whole, logits, ranks);
  for (std::size_t i = 0; i < r.count(); ++i) {
    RowSumOfExponentials(r.op[i], r.logits[i], r.row_max[i], r.row_sum[i]);
  }
  Reduce(r.row_sum, false);
  for (std::size_t i = 0; i < r.count(); ++i) {
    LogSoftmax(r.op[i], r.logits[i], r.row_max[i], r.row_sum[i], r.saved[i]);
    NllForward(r.op[i], labels, r.saved[i], r.target[i]);
  }
  Reduce(r.target, false);
  Result result{Numbers(CrossEntropyLoss(logits.type().dtype)), Numbers(logits.type())};
  NllMean(whole, r.target[0], result.loss);
  for (std::size_t i = 0; i < r.count(); ++i) {
    Numbers d(r.saved[i].type()), d_logits(r.saved[i].type());
    NllBackward(r.op[i], labels, d);
    const double divisor = whole.divisor == 0 ? static_cast<double>(whole.rows) : whole.divisor;
    LogSoftmaxBackward(r.op[i], d, r.saved[i], d_logits,
                       ranks == 1 ? std::nullopt : std::optional<double>(-whole.scale / divisor),
                       ranks == 1 ? std::nullopt : std::optional<ConstTensor>(labels));
    SetColumns(whole, d_logits, r.op[i].first_column, r.op[i].columns, result.gradient);
  }
  return result;
}

/// The softmax-saving form.
Result SoftmaxOf(const CrossEntropy& whole, const Numbers& logits, const Numbers& labels, std::int64_t ranks) {
  Ranks r(whole, logits, ranks);
  for (std::size_t i = 0; i < r.count(); ++i) {
    SoftmaxShift(r.op[i], r.logits[i], r.row_max[i], r.saved[i]);
    SoftmaxTarget(r.op[i], labels, r.saved[i], r.target[i]);
    SoftmaxExponential(r.op[i], r.saved[i], r.row_sum[i]);
  }
  Reduce(r.target, false);
  Reduce(r.row_sum, false);
  Result result{Numbers(CrossEntropyLoss(logits.type().dtype)), Numbers(logits.type())};
  for (std::size_t i = 0; i < r.count(); ++i) {
    SoftmaxNormalise(r.op[i], r.row_sum[i], r.target[i], r.saved[i], result.loss, ConstTensor(labels));
    SoftmaxBackward(r.op[i], labels, r.saved[i]);
    SetColumns(whole, r.saved[i], r.op[i].first_column, r.op[i].columns, result.gradient);
  }
  return result;
}

/// The fused form, always over the whole vocabulary.
Result InPlaceOf(const CrossEntropy& op, const Numbers& logits, const Numbers& labels, std::int64_t) {
  Result result{Numbers(CrossEntropyLoss(logits.type().dtype)), logits};
  Numbers losses(CrossEntropyRows(op, logits.type().dtype));
  CrossEntropyInPlace(op, labels, result.gradient, losses);
  SumLosses(losses, result.loss);
  Scale(op.scale, result.gradient);
  return result;
}

using Form = Result (*)(const CrossEntropy&, const Numbers&, const Numbers&, std::int64_t);

TEST(CrossEntropy, EveryFormOnEveryNumberOfRanksIsTheDefinition) {
  const CrossEntropy op{.rows = 5, .columns = 12, .scale = 0.25};
  const std::vector<std::int64_t> labels = {0, 11, 5, 3, 5};
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    Numbers logits = Numbers::Random({dtype, 60}, 1);
    Scale(8, logits);
    const Naive naive(op, logits, labels);
    // Differences of logits up to 16 and logarithms: 16 u and a few; sums of 12; gradients up to scale / rows.
    const double u = UnitRoundoff(dtype);
    for (const Form form : {LogSoftmaxOf, SoftmaxOf, InPlaceOf}) {
      for (const std::int64_t ranks : {1, 2, 3}) {
        const Result result = form(op, logits, Numbers::Integers(labels), ranks);
        EXPECT_NEAR(result.loss[0], naive.loss, 100 * u);
        ExpectNear(result.gradient, naive.gradient, 100 * u * op.scale / 5);
      }
    }
  }
}

TEST(CrossEntropy, GradientsAreThoseOfFiniteDifferences) {
  const CrossEntropy op{.rows = 3, .columns = 6, .divisor = 2};  // the loss's own: no further scale
  const Numbers labels = Numbers::Integers({4, 0, kIgnored});
  for (const Form form : {LogSoftmaxOf, SoftmaxOf, InPlaceOf}) {
    Numbers logits = Numbers::Random({DType::fp64, 18}, 2);
    const Result result = form(op, logits, labels, 1);
    ExpectGradient([&] { return form(op, logits, labels, 1).loss[0]; }, logits, result.gradient);
  }
}

TEST(CrossEntropy, IgnoredLabelsAddNothing) {
  const CrossEntropy op{.rows = 3, .columns = 6, .divisor = 2};
  const std::vector<std::int64_t> labels = {4, kIgnored, 2};
  const Numbers logits = Numbers::Random({DType::fp64, 18}, 3);
  const Naive naive(op, logits, labels);
  for (const Form form : {LogSoftmaxOf, SoftmaxOf, InPlaceOf}) {
    const Result result = form(op, logits, Numbers::Integers(labels), 1);
    EXPECT_NEAR(result.loss[0], naive.loss, 1e-14);
    ExpectNear(result.gradient, naive.gradient, 1e-15);
  }
  for (const Form form : {LogSoftmaxOf, SoftmaxOf}) {
    const Result divided = form(op, logits, Numbers::Integers(labels), 2);
    EXPECT_NEAR(divided.loss[0], naive.loss, 1e-14);
    ExpectNear(divided.gradient, naive.gradient, 1e-15);
  }
}

TEST(CrossEntropy, LogitsFarApartGiveFiniteLosses) {
  const CrossEntropy op{.rows = 1, .columns = 3};
  const Numbers logits(DType::fp32, {-3e4, 1e4, 0}), labels = Numbers::Integers({0});
  for (const Form form : {LogSoftmaxOf, SoftmaxOf, InPlaceOf}) {
    EXPECT_EQ(form(op, logits, labels, 1).loss[0], 4e4);
  }
}

TEST(CrossEntropy, ANaNReachesTheLoss) {
  const CrossEntropy op{.rows = 2, .columns = 40};
  Numbers logits = Numbers::Random({DType::fp32, 80}, 4);
  logits.Set(67, std::numeric_limits<double>::quiet_NaN());
  for (const Form form : {LogSoftmaxOf, SoftmaxOf, InPlaceOf}) {
    const Result result = form(op, logits, Numbers::Integers({0, 1}), 1);
    EXPECT_TRUE(std::isnan(result.loss[0]) && std::isnan(result.gradient[50]) && std::isfinite(result.gradient[5]));
  }
}

TEST(CrossEntropy, Bf16MatricesAreRoundedAtEachPassOnly) {
  const CrossEntropy op{.rows = 2, .columns = 30};
  const std::vector<std::int64_t> labels = {7, 29};
  const Numbers logits = Numbers::Random({DType::bf16, 60}, 5);
  const Naive naive(op, logits, labels);
  // Log-softmaxes lie between -log 30 - 2 and 0 and are rounded by 2^-8 of that: so is the loss, and each softmax by
  // that much relatively. The gradient is rounded once more.
  const double lost = 0x1p-8 * (std::log(30.0) + 2);
  const Result low = LogSoftmaxOf(op, logits, Numbers::Integers(labels), 1);
  EXPECT_NEAR(low.loss[0], naive.loss, lost);
  ExpectNear(low.gradient, naive.gradient, (lost * 0.3 + 0x1p-8) / 2);
  const Result fused = InPlaceOf(op, logits, Numbers::Integers(labels), 1);
  EXPECT_NEAR(fused.loss[0], naive.loss, 1e-6);  // the matrix is rounded only as it becomes the gradient
  ExpectNear(fused.gradient, naive.gradient, [&](std::size_t i) {
    return 2 * 0x1p-8 * std::abs(naive.gradient[i]) + 1e-7;  // and scaled by 1
  });
}

TEST(CrossEntropy, TheSinglePassIsThatOfThreePasses) {
  const CrossEntropy op{.rows = 4, .columns = 9, .scale = 3};
  const Numbers logits = Numbers::Random({DType::fp64, 36}, 6), labels = Numbers::Integers({0, 3, 6, 8});
  Numbers saved(logits.type()), loss(CrossEntropyLoss(DType::fp64));
  LogSoftmaxForward(op, logits, saved);
  NllLoss(op, saved, labels, loss);
  EXPECT_NEAR(loss[0], 3 * LogSoftmaxOf(op, logits, labels, 1).loss[0], 1e-14);
}

}  // namespace
}  // namespace tidemark::kernels::cross_entropy_test
