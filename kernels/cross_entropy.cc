// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <cmath>

#include "kernels/exponential.h"
#include "kernels/pointwise.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

double Divisor(const CrossEntropy& op) { return op.divisor == 0 ? static_cast<double>(op.rows) : op.divisor; }
/// What the gradient of a row's loss is multiplied by.
double RowGradient(const CrossEntropy& op) { return op.scale / Divisor(op); }

/// Whether a row adds to the loss.
bool Counts(const std::optional<ConstTensor>& labels, std::int64_t row) {
  return !labels || Elements<std::int64_t>(*labels)[row] >= 0;
}

bool IsHere(const CrossEntropy& op, std::int64_t label) {
  return label >= op.first_column && label < op.first_column + op.columns;
}

void CheckMatrix(const CrossEntropy& op, const TensorType& type) {
  TIDEMARK_CHECK(type.elements == op.rows * op.columns);
}
/// A statistic of each row of a matrix of this dtype.
void CheckRows(const CrossEntropy& op, const TensorType& rows, DType matrix) {
  TIDEMARK_CHECK(rows == CrossEntropyRows(op, matrix));
}
void CheckLabels(const CrossEntropy& op, const TensorType& labels) {
  TIDEMARK_CHECK(labels == (TensorType{DType::int64, op.rows}));
}

/// Calls `body(row)` in the arithmetic of `matrix`, with a reader of its rows.
template <class Body>
void EachRow(const CrossEntropy& op, const ConstTensor& matrix, Body body) {
  CheckMatrix(op, matrix.type);
  InArithmeticOf({matrix.type}, [&]<class C>(C) {
    Reader<C> rows(matrix, op.columns);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      body(row, rows.At(row * op.columns, op.columns));
    }
  });
}

/// The same, with where to write the row of another matrix of any dtype.
template <class Body>
void MapRows(const CrossEntropy& op, const ConstTensor& from, const Tensor& to, Body body) {
  CheckMatrix(op, from.type);
  CheckMatrix(op, to.type);
  InArithmeticOf({from.type, to.type}, [&]<class C>(C) {
    Reader<C> inputs(from, op.columns);
    Writer<C> outputs(to, op.columns);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      const std::int64_t begin = row * op.columns;
      body(row, inputs.At(begin, op.columns), outputs.At(begin, op.columns));
      outputs.Done(begin, op.columns);
    }
  });
}

template <class C>
C ExponentialSum(std::int64_t columns, const C* x, C largest) {
  return SumOf<C>(columns, [x, largest](std::int64_t i) { return Exp(x[i] - largest); });
}

template <class C>
void Gather(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& matrix, const Tensor& target) {
  const auto* label = Elements<std::int64_t>(labels);
  C* targets = Elements<C>(target);
  Reader<C> elements(matrix, 1);
  for (std::int64_t row = 0; row < op.rows; ++row) {
    targets[row] = IsHere(op, label[row]) ? *elements.At(row * op.columns + label[row] - op.first_column, 1) : C(0);
  }
}

/// Element [row, label] of each row, 0 where the label is not here.
void GatherTargets(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& matrix, const Tensor& target) {
  CheckMatrix(op, matrix.type);
  CheckLabels(op, labels.type);
  CheckRows(op, target.type, matrix.type.dtype);
  InArithmeticOf({matrix.type}, [&]<class C>(C) { Gather<C>(op, labels, matrix, target); });
}

/// loss = factor * sum of rows.
void SumRows(const ConstTensor& rows, double factor, const Tensor& loss) {
  TIDEMARK_CHECK(loss.type.elements == 1);
  InArithmeticOf({rows.type, loss.type}, [&]<class C>(C) {
    Reader<C> reader(rows, rows.type.elements);
    const C* x = reader.At(0, rows.type.elements);
    const C sum = SumOf<C>(rows.type.elements, [x](std::int64_t i) { return x[i]; });
    const C total = sum * static_cast<C>(factor);
    Narrow(&total, loss, 0, 1);
  });
}

}  // namespace

TensorType CrossEntropyMatrix(const CrossEntropy& op, DType dtype) { return {dtype, op.rows * op.columns}; }
TensorType CrossEntropyRows(const CrossEntropy& op, DType matrix) { return {StatisticsOf(matrix), op.rows}; }
TensorType CrossEntropyLoss(DType matrix) { return {StatisticsOf(matrix), 1}; }

void RowMax(const CrossEntropy& op, const ConstTensor& logits, const Tensor& row_max) {
  CheckRows(op, row_max.type, logits.type.dtype);
  EachRow(op, logits, [&]<class C>(std::int64_t row, const C* x) { Elements<C>(row_max)[row] = MaxOf(op.columns, x); });
}

void RowSumOfExponentials(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max,
                          const Tensor& row_sum) {
  CheckRows(op, row_max.type, logits.type.dtype);
  CheckRows(op, row_sum.type, logits.type.dtype);
  EachRow(op, logits, [&]<class C>(std::int64_t row, const C* x) {
    Elements<C>(row_sum)[row] = ExponentialSum(op.columns, x, Elements<C>(row_max)[row]);
  });
}

void LogSoftmax(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max,
                const ConstTensor& row_sum, const Tensor& log_softmax) {
  CheckRows(op, row_max.type, logits.type.dtype);
  CheckRows(op, row_sum.type, logits.type.dtype);
  MapRows(op, logits, log_softmax, [&]<class C>(std::int64_t row, const C* x, C* y) {
    const C largest = Elements<C>(row_max)[row], log_sum = std::log(Elements<C>(row_sum)[row]);
    Each(op.columns, [=](std::int64_t i) { y[i] = (x[i] - largest) - log_sum; });
  });
}

void NllForward(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& log_softmax,
                const Tensor& target) {
  GatherTargets(op, labels, log_softmax, target);
}

void NllMean(const CrossEntropy& op, const ConstTensor& target, const Tensor& loss) {
  TIDEMARK_CHECK(target.type.elements == op.rows);
  SumRows(target, -1 / Divisor(op), loss);
}

void NllBackward(const CrossEntropy& op, const ConstTensor& labels, const Tensor& d_log_softmax) {
  CheckMatrix(op, d_log_softmax.type);
  CheckLabels(op, labels.type);
  Zero(d_log_softmax);
  const auto* label = Elements<std::int64_t>(labels);
  const double gradient = -RowGradient(op);
  for (std::int64_t row = 0; row < op.rows; ++row) {
    if (IsHere(op, label[row])) {
      Narrow(&gradient, d_log_softmax, row * op.columns + label[row] - op.first_column, 1);
    }
  }
}

void LogSoftmaxBackward(const CrossEntropy& op, const ConstTensor& d_log_softmax, const ConstTensor& log_softmax,
                        const Tensor& d_logits, std::optional<double> row_gradient,
                        const std::optional<ConstTensor>& labels) {
  TIDEMARK_CHECK(!labels || row_gradient);
  if (labels) {
    CheckLabels(op, labels->type);
  }
  CheckMatrix(op, log_softmax.type);
  InArithmeticOf({d_log_softmax.type, log_softmax.type, d_logits.type}, [&]<class C>(C) {
    CheckMatrix(op, d_log_softmax.type);
    CheckMatrix(op, d_logits.type);
    Reader<C> gradients(d_log_softmax, op.columns), saved(log_softmax, op.columns);
    Writer<C> outputs(d_logits, op.columns);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      const std::int64_t begin = row * op.columns;
      const C* d = gradients.At(begin, op.columns);
      const C given = Counts(labels, row) ? static_cast<C>(row_gradient.value_or(0)) : C(0);
      const C sum = row_gradient ? given : SumOf<C>(op.columns, [d](std::int64_t i) { return d[i]; });
      Each(op.columns, [=, y = saved.At(begin, op.columns), dx = outputs.At(begin, op.columns)](std::int64_t i) {
        dx[i] = d[i] - Exp(y[i]) * sum;
      });
      outputs.Done(begin, op.columns);
    }
  });
}

void LogSoftmaxForward(const CrossEntropy& op, const ConstTensor& logits, const Tensor& log_softmax) {
  MapRows(op, logits, log_softmax, [&]<class C>(std::int64_t, const C* x, C* y) {
    const C largest = MaxOf(op.columns, x), log_sum = std::log(ExponentialSum(op.columns, x, largest));
    Each(op.columns, [=](std::int64_t i) { y[i] = (x[i] - largest) - log_sum; });
  });
}

void NllLoss(const CrossEntropy& op, const ConstTensor& log_softmax, const ConstTensor& labels, const Tensor& loss) {
  CheckMatrix(op, log_softmax.type);
  CheckLabels(op, labels.type);
  const auto* label = Elements<std::int64_t>(labels);
  InArithmeticOf({log_softmax.type, loss.type}, [&]<class C>(C) {
    Reader<C> elements(log_softmax, 1);
    C sum = 0;
    for (std::int64_t row = 0; row < op.rows; ++row) {
      sum += IsHere(op, label[row]) ? *elements.At(row * op.columns + label[row] - op.first_column, 1) : C(0);
    }
    const C total = sum * static_cast<C>(-RowGradient(op));
    Narrow(&total, loss, 0, 1);
  });
}

void SoftmaxShift(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max,
                  const Tensor& softmax) {
  CheckRows(op, row_max.type, logits.type.dtype);
  MapRows(op, logits, softmax, [&]<class C>(std::int64_t row, const C* x, C* y) {
    Each(op.columns, [=, largest = Elements<C>(row_max)[row]](std::int64_t i) { y[i] = x[i] - largest; });
  });
}

void SoftmaxTarget(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& shifted,
                   const Tensor& target) {
  GatherTargets(op, labels, shifted, target);
}

void SoftmaxExponential(const CrossEntropy& op, const Tensor& softmax, const Tensor& row_sum) {
  CheckRows(op, row_sum.type, softmax.type.dtype);
  MapRows(op, softmax, softmax, [&]<class C>(std::int64_t row, const C* x, C* y) {
    Each(op.columns, [=](std::int64_t i) { y[i] = Exp(x[i]); });
    Elements<C>(row_sum)[row] = SumOf<C>(op.columns, [y](std::int64_t i) { return y[i]; });
  });
}

void SoftmaxNormalise(const CrossEntropy& op, const ConstTensor& row_sum, const ConstTensor& target,
                      const Tensor& softmax, const Tensor& loss, const std::optional<ConstTensor>& labels) {
  if (labels) {
    CheckLabels(op, labels->type);
  }
  CheckRows(op, row_sum.type, softmax.type.dtype);
  CheckRows(op, target.type, softmax.type.dtype);
  MapRows(op, softmax, softmax, [&]<class C>(std::int64_t row, const C* x, C* y) {
    Each(op.columns, [=, sum = Elements<C>(row_sum)[row]](std::int64_t i) { y[i] = x[i] / sum; });
  });
  InArithmeticOf({row_sum.type, loss.type}, [&]<class C>(C) {
    Reader<C> sums(row_sum, 1), targets(target, 1);
    C total = 0;
    for (std::int64_t row = 0; row < op.rows; ++row) {
      total += Counts(labels, row) ? std::log(*sums.At(row, 1)) - *targets.At(row, 1) : C(0);
    }
    total /= static_cast<C>(Divisor(op));
    Narrow(&total, loss, 0, 1);
  });
}

void SoftmaxBackward(const CrossEntropy& op, const ConstTensor& labels, const Tensor& softmax) {
  CheckLabels(op, labels.type);
  const auto* label = Elements<std::int64_t>(labels);
  MapRows(op, softmax, softmax, [&]<class C>(std::int64_t row, const C* x, C* y) {
    const C factor = label[row] < 0 ? C(0) : static_cast<C>(RowGradient(op));
    const bool here = IsHere(op, label[row]);
    const std::int64_t at = here ? label[row] - op.first_column : 0;
    const C target = (x[at] - C(1)) * factor;
    Each(op.columns, [=](std::int64_t i) { y[i] = x[i] * factor; });
    if (here) {
      y[at] = target;
    }
  });
}

void CrossEntropyInPlace(const CrossEntropy& op, const ConstTensor& labels, const Tensor& logits,
                         const Tensor& losses) {
  CheckLabels(op, labels.type);
  CheckRows(op, losses.type, logits.type.dtype);
  TIDEMARK_CHECK(op.first_column == 0);
  const auto* label = Elements<std::int64_t>(labels);
  MapRows(op, logits, logits, [&]<class C>(std::int64_t row, const C* x, C* y) {
    if (!IsHere(op, label[row])) {
      std::fill_n(y, op.columns, C(0));
      Elements<C>(losses)[row] = 0;
      return;
    }
    const C factor = static_cast<C>(1 / Divisor(op));
    const C largest = MaxOf(op.columns, x), sum = ExponentialSum(op.columns, x, largest);
    Elements<C>(losses)[row] = ((largest - x[label[row]]) + std::log(sum)) * factor;
    const C target = Exp(x[label[row]] - largest) / sum - C(1);
    Each(op.columns, [=](std::int64_t i) { y[i] = Exp(x[i] - largest) / sum * factor; });
    y[label[row]] = target * factor;
  });
}

void SumLosses(const ConstTensor& losses, const Tensor& loss) { SumRows(losses, 1, loss); }

}  // namespace tidemark::kernels
