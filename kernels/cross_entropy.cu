// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/cross_entropy_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/sum.cuh"

namespace tidemark::kernels::cuda {
namespace {

double Divisor(const CrossEntropy& op) { return op.divisor == 0 ? static_cast<double>(op.rows) : op.divisor; }
/// What the gradient of a row's loss is multiplied by.
double RowGradient(const CrossEntropy& op) { return op.scale / Divisor(op); }

void CheckMatrix(const CrossEntropy& op, const TensorType& type) {
  TIDEMARK_CHECK(type.elements == op.rows * op.columns);
}
/// A statistic of each row of a matrix of this dtype.
void CheckRows(const CrossEntropy& op, const TensorType& rows, DType matrix) {
  TIDEMARK_CHECK(rows == CrossEntropyRows(op, matrix));
}

/// The labels of the rows that this rank's columns belong to.
struct Labels {
  const std::int64_t* label;  ///< null: every row counts
  std::int64_t first_column, columns;

  /// Whether a row adds to the loss.
  __host__ __device__ bool Counts(std::int64_t row) const { return label == nullptr || label[row] >= 0; }
  /// The column of the row's label, -1 where it is not here.
  __host__ __device__ std::int64_t Column(std::int64_t row) const {
    const std::int64_t column = label[row] - first_column;
    return column >= 0 && column < columns ? column : -1;
  }
};

Labels LabelsOf(const CrossEntropy& op, const std::optional<ConstTensor>& labels) {
  TIDEMARK_CHECK(!labels || labels->type.elements == op.rows);
  return {labels ? Elements<std::int64_t>(*labels) : nullptr, op.first_column, op.columns};
}

template <class C>
__host__ __device__ C MaxOfRow(const Team& team, const Input<C>& matrix, std::int64_t begin, std::int64_t columns) {
  return team.Max<C>(begin, begin + columns, [&](auto at) { return matrix[at]; });
}
template <class C>
__host__ __device__ C ExponentialSum(const Team& team, const Input<C>& matrix, std::int64_t begin, std::int64_t columns,
                                     C largest) {
  const auto exponential = [&](C x) { return std::exp(x - largest); };
  return team.Sum<C>(begin, begin + columns, [&](auto at) { return Map(exponential, matrix[at]); });
}

template <class C>
struct MaxRow {
  std::int64_t columns;
  Input<C> logits;
  Output<C> row_max;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C largest = MaxOfRow(team, logits, row * columns, columns);
    team.Each(1, [&](std::int64_t) { row_max.Set(row, largest); });
  }
};

template <class C>
struct ExponentialSumRow {
  std::int64_t columns;
  Input<C> logits, row_max;
  Output<C> row_sum;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C sum = ExponentialSum(team, logits, row * columns, columns, row_max[row]);
    team.Each(1, [&](std::int64_t) { row_sum.Set(row, sum); });
  }
};

/// log_softmax = (x - largest) - log(sum); without `is_given` both are taken here.
template <class C>
struct LogSoftmaxRow {
  std::int64_t columns;
  bool is_given;
  Input<C> logits, row_max, row_sum;
  Output<C> log_softmax;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * columns;
    const C largest = is_given ? row_max[row] : MaxOfRow(team, logits, begin, columns);
    const C log_sum = std::log(is_given ? row_sum[row] : ExponentialSum(team, logits, begin, columns, largest));
    const auto logarithm = [&](C x) { return (x - largest) - log_sum; };
    team.Each(begin, begin + columns, [&](auto at) { log_softmax.Set(at, Map(logarithm, logits[at])); });
  }
};

/// Element [row, label] of a matrix, 0 where the label is not here.
template <class C>
struct LabelElement {
  Labels labels;
  Input<C> matrix;
  __host__ __device__ C operator()(std::int64_t row) const {
    const std::int64_t column = labels.Column(row);
    return column < 0 ? C(0) : matrix[row * labels.columns + column];
  }
};

template <class C>
struct GatherElement {
  LabelElement<C> element;
  Output<C> target;
  __host__ __device__ void operator()(std::int64_t row) const { target.Set(row, element(row)); }
};

template <class C>
struct ScatterElement {
  Labels labels;
  C value;
  Output<C> matrix;
  __host__ __device__ void operator()(std::int64_t row) const {
    if (const std::int64_t column = labels.Column(row); column >= 0) {
      matrix.Set(row * labels.columns + column, value);
    }
  }
};

template <class C>
struct LogSoftmaxBackwardRow {
  Labels labels;
  bool is_given;
  C row_gradient;
  Input<C> gradient, log_softmax;
  Output<C> d_logits;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * labels.columns, end = begin + labels.columns;
    const C given = labels.Counts(row) ? row_gradient : C(0);
    const C sum = is_given ? given : team.Sum<C>(begin, end, [&](auto at) { return gradient[at]; });
    const auto dx = [&](C dy, C y) { return dy - std::exp(y) * sum; };
    team.Each(begin, end, [&](auto at) { d_logits.Set(at, Map(dx, gradient[at], log_softmax[at])); });
  }
};

template <class C>
struct ShiftRow {
  std::int64_t columns;
  Input<C> logits, row_max;
  Output<C> softmax;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * columns;
    const C largest = row_max[row];
    team.Each(begin, begin + columns,
              [&](auto at) { softmax.Set(at, Map([&](C x) { return x - largest; }, logits[at])); });
  }
};

/// The sum is of exponentials before they are rounded to the matrix's dtype.
template <class C>
struct ExponentialRow {
  std::int64_t columns;
  Output<C> softmax, row_sum;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * columns;
    const C sum = team.Sum<C>(begin, begin + columns, [&](auto at) {
      const auto e = Map([](C x) { return std::exp(x); }, softmax[at]);
      softmax.Set(at, e);
      return e;
    });
    team.Each(1, [&](std::int64_t) { row_sum.Set(row, sum); });
  }
};

template <class C>
struct NormaliseRow {
  std::int64_t columns;
  Input<C> row_sum;
  Output<C> softmax;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * columns;
    const C sum = row_sum[row];
    team.Each(begin, begin + columns,
              [&](auto at) { softmax.Set(at, Map([&](C x) { return x / sum; }, softmax[at])); });
  }
};

template <class C>
struct RowLoss {
  Labels labels;
  Input<C> row_sum, target;
  __host__ __device__ C operator()(std::int64_t row) const {
    return labels.Counts(row) ? std::log(row_sum[row]) - target[row] : C(0);
  }
};

template <class C>
struct SoftmaxBackwardRow {
  Labels labels;
  C row_gradient;
  Output<C> softmax;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C factor = labels.Counts(row) ? row_gradient : C(0);
    const std::int64_t begin = row * labels.columns, column = labels.Column(row);
    const std::int64_t target = column < 0 ? -1 : begin + column;
    const auto dx = [&](std::int64_t i, C x) { return (x - (i == target ? C(1) : C(0))) * factor; };
    team.Each(begin, begin + labels.columns, [&](auto at) { softmax.Set(at, Map(dx, IndexOf(at), softmax[at])); });
  }
};

template <class C>
struct InPlaceRow {
  Labels labels;
  C factor;
  Input<C> logits;
  Output<C> gradient, losses;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t columns = labels.columns, begin = row * columns, target = begin + labels.Column(row);
    if (target < begin) {
      team.Each(begin, begin + columns, [&](auto at) { gradient.Set(at, Everywhere(at, C(0))); });
      team.Each(1, [&](std::int64_t) { losses.Set(row, C(0)); });
      return;
    }
    const C at_target = logits[target];  // read before the sums below, written after
    const C largest = MaxOfRow(team, logits, begin, columns);
    const C sum = ExponentialSum(team, logits, begin, columns, largest);
    team.Each(1, [&](std::int64_t) { losses.Set(row, ((largest - at_target) + std::log(sum)) * factor); });
    const auto dx = [&](std::int64_t i, C x) {
      return (std::exp(x - largest) / sum - (i == target ? C(1) : C(0))) * factor;
    };
    team.Each(begin, begin + columns, [&](auto at) { gradient.Set(at, Map(dx, IndexOf(at), logits[at])); });
  }
};

template <class C>
struct ElementOf {
  Input<C> elements;
  template <class At>
  __host__ __device__ auto operator()(At at) const {
    return elements[at];
  }
};
template <class C>
struct StoreTimes {
  C factor;
  Output<C> to;
  __host__ __device__ void operator()(C value) const { to.Set(0, value * factor); }
};

/// Element [row, label] of each row, 0 where the label is not here.
void GatherTargets(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& matrix, const Tensor& target,
                   const Queue& queue) {
  CheckMatrix(op, matrix.type);
  CheckRows(op, target.type, matrix.type.dtype);
  InArithmeticOf({matrix.type}, [&]<class C>(C) {
    EachElement(queue, op.rows, GatherElement<C>{{LabelsOf(op, labels), matrix}, target});
  });
}

/// loss = factor * sum of rows.
void SumRows(const ConstTensor& rows, double factor, const Tensor& loss, const Queue& queue) {
  TIDEMARK_CHECK(loss.type.elements == 1);
  InArithmeticOf({rows.type, loss.type}, [&]<class C>(C) {
    SumAll<C>(queue, rows.type.elements, ElementOf<C>{rows}, StoreTimes<C>{static_cast<C>(factor), loss});
  });
}

}  // namespace

void RowMax(const CrossEntropy& op, const ConstTensor& logits, const Tensor& row_max, const Queue& queue) {
  CheckMatrix(op, logits.type);
  CheckRows(op, row_max.type, logits.type.dtype);
  InArithmeticOf({logits.type}, [&]<class C>(C) { EachRow(queue, op.rows, MaxRow<C>{op.columns, logits, row_max}); });
}

void RowSumOfExponentials(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max,
                          const Tensor& row_sum, const Queue& queue) {
  CheckMatrix(op, logits.type);
  CheckRows(op, row_max.type, logits.type.dtype);
  CheckRows(op, row_sum.type, logits.type.dtype);
  InArithmeticOf({logits.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, ExponentialSumRow<C>{op.columns, logits, row_max, row_sum});
  });
}

void LogSoftmax(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max,
                const ConstTensor& row_sum, const Tensor& log_softmax, const Queue& queue) {
  CheckMatrix(op, logits.type);
  CheckMatrix(op, log_softmax.type);
  CheckRows(op, row_max.type, logits.type.dtype);
  CheckRows(op, row_sum.type, logits.type.dtype);
  InArithmeticOf({logits.type, log_softmax.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, LogSoftmaxRow<C>{op.columns, true, logits, row_max, row_sum, log_softmax});
  });
}

void NllForward(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& log_softmax, const Tensor& target,
                const Queue& queue) {
  GatherTargets(op, labels, log_softmax, target, queue);
}

void NllMean(const CrossEntropy& op, const ConstTensor& target, const Tensor& loss, const Queue& queue) {
  TIDEMARK_CHECK(target.type.elements == op.rows);
  SumRows(target, -1 / Divisor(op), loss, queue);
}

void NllBackward(const CrossEntropy& op, const ConstTensor& labels, const Tensor& d_log_softmax, const Queue& queue) {
  CheckMatrix(op, d_log_softmax.type);
  Zero(d_log_softmax, queue);
  EachElement(queue, op.rows, ScatterElement<double>{LabelsOf(op, labels), -RowGradient(op), d_log_softmax});
}

void LogSoftmaxBackward(const CrossEntropy& op, const ConstTensor& d_log_softmax, const ConstTensor& log_softmax,
                        const Tensor& d_logits, std::optional<double> row_gradient,
                        const std::optional<ConstTensor>& labels, const Queue& queue) {
  CheckMatrix(op, d_log_softmax.type);
  CheckMatrix(op, log_softmax.type);
  CheckMatrix(op, d_logits.type);
  InArithmeticOf({d_log_softmax.type, log_softmax.type, d_logits.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            LogSoftmaxBackwardRow<C>{LabelsOf(op, labels), row_gradient.has_value(),
                                     static_cast<C>(row_gradient.value_or(0)), d_log_softmax, log_softmax, d_logits});
  });
}

void LogSoftmaxForward(const CrossEntropy& op, const ConstTensor& logits, const Tensor& log_softmax,
                       const Queue& queue) {
  CheckMatrix(op, logits.type);
  CheckMatrix(op, log_softmax.type);
  InArithmeticOf({logits.type, log_softmax.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, LogSoftmaxRow<C>{op.columns, false, logits, logits, logits, log_softmax});
  });
}

void NllLoss(const CrossEntropy& op, const ConstTensor& log_softmax, const ConstTensor& labels, const Tensor& loss,
             const Queue& queue) {
  CheckMatrix(op, log_softmax.type);
  InArithmeticOf({log_softmax.type, loss.type}, [&]<class C>(C) {
    SumAll<C>(queue, op.rows, LabelElement<C>{LabelsOf(op, labels), log_softmax},
              StoreTimes<C>{static_cast<C>(-RowGradient(op)), loss});
  });
}

void SoftmaxShift(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max, const Tensor& softmax,
                  const Queue& queue) {
  CheckMatrix(op, logits.type);
  CheckMatrix(op, softmax.type);
  CheckRows(op, row_max.type, logits.type.dtype);
  InArithmeticOf({logits.type, softmax.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, ShiftRow<C>{op.columns, logits, row_max, softmax});
  });
}

void SoftmaxTarget(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& shifted, const Tensor& target,
                   const Queue& queue) {
  GatherTargets(op, labels, shifted, target, queue);
}

void SoftmaxExponential(const CrossEntropy& op, const Tensor& softmax, const Tensor& row_sum, const Queue& queue) {
  CheckMatrix(op, softmax.type);
  CheckRows(op, row_sum.type, softmax.type.dtype);
  InArithmeticOf({softmax.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, ExponentialRow<C>{op.columns, softmax, row_sum});
  });
}

void SoftmaxNormalise(const CrossEntropy& op, const ConstTensor& row_sum, const ConstTensor& target,
                      const Tensor& softmax, const Tensor& loss, const std::optional<ConstTensor>& labels,
                      const Queue& queue) {
  CheckMatrix(op, softmax.type);
  CheckRows(op, row_sum.type, softmax.type.dtype);
  CheckRows(op, target.type, softmax.type.dtype);
  TIDEMARK_CHECK(loss.type.elements == 1);
  InArithmeticOf({softmax.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, NormaliseRow<C>{op.columns, row_sum, softmax});
  });
  InArithmeticOf({row_sum.type, loss.type}, [&]<class C>(C) {
    SumAll<C>(queue, op.rows, RowLoss<C>{LabelsOf(op, labels), row_sum, target},
              StoreTimes<C>{static_cast<C>(1 / Divisor(op)), loss});
  });
}

void SoftmaxBackward(const CrossEntropy& op, const ConstTensor& labels, const Tensor& softmax, const Queue& queue) {
  CheckMatrix(op, softmax.type);
  InArithmeticOf({softmax.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, SoftmaxBackwardRow<C>{LabelsOf(op, labels), static_cast<C>(RowGradient(op)), softmax});
  });
}

void CrossEntropyInPlace(const CrossEntropy& op, const ConstTensor& labels, const Tensor& logits, const Tensor& losses,
                         const Queue& queue) {
  CheckMatrix(op, logits.type);
  CheckRows(op, losses.type, logits.type.dtype);
  TIDEMARK_CHECK(op.first_column == 0);
  InArithmeticOf({logits.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            InPlaceRow<C>{LabelsOf(op, labels), static_cast<C>(1 / Divisor(op)), logits, logits, losses});
  });
}

void SumLosses(const ConstTensor& losses, const Tensor& loss, const Queue& queue) { SumRows(losses, 1, loss, queue); }

}  // namespace tidemark::kernels::cuda
