// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

constexpr double kE = 2.7183;

/// A rank's part of a vocabulary, and what each function of a matrix of `dtype` is given.
struct Problem {
  CrossEntropy op;
  DType dtype = DType::fp32;

  double rows() const { return static_cast<double>(op.rows); }
  double columns() const { return static_cast<double>(op.columns); }
  TensorType matrix() const { return CrossEntropyMatrix(op, dtype); }
  TensorType row() const { return CrossEntropyRows(op, dtype); }
  Numbers Matrix(unsigned seed) const { return Numbers::Random(matrix(), seed); }
  Numbers Rows(unsigned seed) const { return Numbers::Random(row(), seed); }
  Numbers Sums(unsigned seed) const { return SomePositive(row().dtype, op.rows, seed); }
  TensorType Loss() const { return CrossEntropyLoss(dtype); }
  /// Of this rank, of others, and some that are ignored.
  Numbers Labels() const {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < op.rows; ++i) {
      labels.push_back(i % 4 == 3 ? -100 : i * 7 % (op.columns + 2 * op.first_column));
    }
    return Numbers::Integers(labels);
  }
};

template <class Body>
void EachProblem(Body body) {
  for (const RowsOf& m : kMatrices) {
    for (const std::int64_t first_column : {0, 3}) {
      SCOPED_TRACE(std::to_string(m.rows) + " rows of " + std::to_string(m.width));
      EachDType([&](DType dtype) {
        body(Problem{{.rows = m.rows, .columns = m.width, .first_column = first_column, .divisor = 3, .scale = 0.5},
                     dtype});
      });
    }
  }
}

void CheckRowMax(const Place& place) {
  EachProblem([&](const Problem& p) {
    Compare(place, {Read(p.Matrix(1)), Written(p.row(), 0)}, &kernels::RowMax, &cuda::RowMax,
            [&](auto run, const Tensors& t) { run(p.op, t[0], t[1]); });
  });
}

void CheckRowSum(const Place& place) {
  EachProblem([&](const Problem& p) {  // of exp(x - max) <= e^2, whose argument loses 2 and which loses 4 more
    const double lost = (SumLost(p.op.columns) + 6) * kE * kE * p.columns();
    Compare(place, {Read(p.Matrix(1)), Read(p.Rows(2)), Written(p.row(), lost)}, &kernels::RowSumOfExponentials,
            &cuda::RowSumOfExponentials, [&](auto run, const Tensors& t) { run(p.op, t[0], t[1], t[2]); });
  });
}

void CheckLogSoftmax(const Place& place) {
  EachProblem([&](const Problem& p) {  // two differences of size 3, and a logarithm
    const std::vector<Operand> operands = {Read(p.Matrix(1)), Read(p.Rows(2)), Read(p.Sums(3)),
                                           Written(p.matrix(), 4 * 3)};
    Compare(place, operands, &kernels::LogSoftmax, &cuda::LogSoftmax,
            [&](auto run, const Tensors& t) { run(p.op, t[0], t[1], t[2], t[3]); });
  });
}

void CheckLogSoftmaxForward(const Place& place) {
  EachProblem([&](const Problem& p) {
    if (p.op.columns == 0) {
      return;
    }
    // The logarithm of a sum loses what that loses relatively, and 4 of itself, up to log n + 2.
    const double lost = SumLost(p.op.columns) + 6 + 6 * (std::log(p.columns()) + 2);
    Compare(place, {Read(p.Matrix(1)), Written(p.matrix(), lost)}, &kernels::LogSoftmaxForward,
            &cuda::LogSoftmaxForward, [&](auto run, const Tensors& t) { run(p.op, t[0], t[1]); });
  });
}

template <class Truth, class Tested>
void CheckGather(const Place& place, Truth truth, Tested tested) {
  EachProblem([&](const Problem& p) {
    Compare(place, {Read(p.Labels()), Read(p.Matrix(1)), Written(p.row(), 0)}, truth, tested,
            [&](auto run, const Tensors& t) { run(p.op, t[0], t[1], t[2]); });
  });
}
void CheckNllForward(const Place& place) { CheckGather(place, &kernels::NllForward, &cuda::NllForward); }
void CheckSoftmaxTarget(const Place& place) { CheckGather(place, &kernels::SoftmaxTarget, &cuda::SoftmaxTarget); }

void CheckNllMean(const Place& place) {
  EachProblem([&](const Problem& p) {
    const double lost = (SumLost(p.op.rows) + 2) * p.rows() / 3;
    Compare(place, {Read(p.Rows(1)), Written(p.Loss(), lost)}, &kernels::NllMean, &cuda::NllMean,
            [&](auto run, const Tensors& t) { run(p.op, t[0], t[1]); });
  });
}

void CheckNllLoss(const Place& place) {
  EachProblem([&](const Problem& p) {  // the truth's sum goes from row to row
    const std::vector<Operand> operands = {Read(p.Matrix(1)), Read(p.Labels()),
                                           Written(p.Loss(), (p.rows() + 2) * p.rows() * 0.5 / 3)};
    Compare(place, operands, &kernels::NllLoss, &cuda::NllLoss,
            [&](auto run, const Tensors& t) { run(p.op, t[0], t[1], t[2]); });
  });
}

void CheckNllBackward(const Place& place) {
  EachProblem([&](const Problem& p) {
    Compare(place, {Read(p.Labels()), Written(p.matrix(), 1)}, &kernels::NllBackward, &cuda::NllBackward,
            [&](auto run, const Tensors& t) { run(p.op, t[0], t[1]); });
  });
}

void CheckLogSoftmaxBackward(const Place& place) {
  EachProblem([&](const Problem& p) {  // d - exp(y) s, exp(y) <= e with 4 roundings, s a sum of d <= n
    const double lost = (SumLost(p.op.columns) + 6) * kE * p.columns() + 1;
    const std::vector<Operand> operands = {Read(p.Matrix(1)), Read(p.Matrix(2)), Read(p.Labels()),
                                           Written(p.matrix(), lost)};
    const auto compare = [&](std::optional<double> row_gradient, bool with_labels) {
      Compare(
          place, operands, &kernels::LogSoftmaxBackward, &cuda::LogSoftmaxBackward, [&](auto run, const Tensors& t) {
            run(p.op, t[0], t[1], t[3], row_gradient, with_labels ? std::optional<ConstTensor>(t[2]) : std::nullopt);
          });
    };
    compare(std::nullopt, false);
    compare(-0.5 / 3, false);
    compare(-0.5 / 3, true);
  });
}

void CheckShift(const Place& place) {
  EachProblem([&](const Problem& p) {
    Compare(place, {Read(p.Matrix(1)), Read(p.Rows(2)), Written(p.matrix(), 2)}, &kernels::SoftmaxShift,
            &cuda::SoftmaxShift, [&](auto run, const Tensors& t) { run(p.op, t[0], t[1], t[2]); });
    Compare(place, {Updated(p.Matrix(1), 2), Read(p.Rows(2))}, &kernels::SoftmaxShift, &cuda::SoftmaxShift,
            [&](auto run, const Tensors& t) { run(p.op, t[0], t[1], t[0]); });
  });
}

void CheckExponential(const Place& place) {
  EachProblem([&](const Problem& p) {
    const double lost = (SumLost(p.op.columns) + 4) * kE * p.columns();
    Compare(place, {Updated(p.Matrix(1), 4 * kE), Written(p.row(), lost)}, &kernels::SoftmaxExponential,
            &cuda::SoftmaxExponential, [&](auto run, const Tensors& t) { run(p.op, t[0], t[1]); });
  });
}

void CheckNormalise(const Place& place) {
  EachProblem([&](const Problem& p) {  // a sum, from row to row in the truth, of log(sum) - target up to 2
    const std::vector<Operand> operands = {Read(p.Sums(1)), Read(p.Rows(2)), Updated(p.Matrix(3), 2),
                                           Written(p.Loss(), (p.rows() + 8) * p.rows() * 2 / 3), Read(p.Labels())};
    for (const bool with_labels : {false, true}) {
      Compare(place, operands, &kernels::SoftmaxNormalise, &cuda::SoftmaxNormalise, [&](auto run, const Tensors& t) {
        run(p.op, t[0], t[1], t[2], t[3], with_labels ? std::optional<ConstTensor>(t[4]) : std::nullopt);
      });
    }
  });
}

void CheckSoftmaxBackward(const Place& place) {
  EachProblem([&](const Problem& p) {  // (x - 1) times 1/6, itself rounded
    Compare(place, {Read(p.Labels()), Updated(p.Matrix(1), 3 * 2 / 6.0)}, &kernels::SoftmaxBackward,
            &cuda::SoftmaxBackward, [&](auto run, const Tensors& t) { run(p.op, t[0], t[1]); });
  });
}

void CheckInPlace(const Place& place) {
  EachProblem([&](const Problem& p) {
    if (p.op.first_column != 0) {
      return;
    }
    // As the log-softmax, and an exponential's six; thirds of it.
    const double lost = (SumLost(p.op.columns) + 12 + 6 * (std::log(p.columns()) + 2)) / 3;
    Compare(place, {Read(p.Labels()), Updated(p.Matrix(1), lost), Written(p.row(), lost)},
            &kernels::CrossEntropyInPlace, &cuda::CrossEntropyInPlace,
            [&](auto run, const Tensors& t) { run(p.op, t[0], t[1], t[2]); });
  });
}

void CheckSumLosses(const Place& place) {
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    for (const std::int64_t n : {0, 1, 257, 5003, 40001}) {  // the last: several teams
      const double lost = SumLost(n) * static_cast<double>(n);
      Compare(place, {Read(Some(dtype, n, 1)), Written({dtype, 1}, lost)}, &kernels::SumLosses, &cuda::SumLosses,
              [&](auto run, const Tensors& t) { run(t[0], t[1]); });
    }
  }
}

}  // namespace

std::vector<Case> CrossEntropyCases() {
  return {{"RowMax", CheckRowMax},
          {"RowSumOfExponentials", CheckRowSum},
          {"LogSoftmax", CheckLogSoftmax},
          {"NllForward", CheckNllForward},
          {"NllMean", CheckNllMean},
          {"NllBackward", CheckNllBackward},
          {"LogSoftmaxBackward", CheckLogSoftmaxBackward},
          {"LogSoftmaxForward", CheckLogSoftmaxForward},
          {"NllLoss", CheckNllLoss},
          {"SoftmaxShift", CheckShift},
          {"SoftmaxTarget", CheckSoftmaxTarget},
          {"SoftmaxExponential", CheckExponential},
          {"SoftmaxNormalise", CheckNormalise},
          {"SoftmaxBackward", CheckSoftmaxBackward},
          {"CrossEntropyInPlace", CheckInPlace},
          {"SumLosses", CheckSumLosses}};
}

}  // namespace tidemark::kernels::cuda
