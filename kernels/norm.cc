// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <cmath>

#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

void CheckMatrix(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows * op.width); }
void CheckRow(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.width); }

/// Of a row: its mean, 0 for RMSNorm, and 1 / sqrt(mean (x - mean)^2 + eps).
template <class C>
struct Statistics {
  C mean = 0, rstd = 0;

  Statistics(const Norm& op, const C* x) {
    const C width = static_cast<C>(op.width);
    if (op.layer_norm) {
      mean = SumOf<C>(op.width, [x](std::int64_t i) { return x[i]; }) / width;
    }
    const C square = SumOf<C>(op.width, [x, m = mean](std::int64_t i) { return (x[i] - m) * (x[i] - m); }) / width;
    rstd = C(1) / std::sqrt(square + static_cast<C>(op.eps));
  }
};

/// Gradient of a row of [width], summed over rows.
template <class C>
class RowGradient {
 public:
  RowGradient(const Norm& op, const std::optional<Tensor>& tensor) : width_(op.width) {
    if (!tensor) {
      return;
    }
    CheckRow(op, tensor->type);
    writer_.emplace(*tensor, width_);
    sum_ = op.accumulate ? writer_->Present(0, width_) : writer_->At(0, width_);
    if (!op.accumulate) {
      std::fill_n(sum_, width_, C(0));
    }
  }
  template <class Term>
  void Add(Term term) {
    if (writer_) {
      Each(width_, [sum = sum_, term](std::int64_t i) { sum[i] += term(i); });
    }
  }
  void Done() {
    if (writer_) {
      writer_->Done(0, width_);
    }
  }

 private:
  std::int64_t width_;
  std::optional<Writer<C>> writer_;
  C* sum_ = nullptr;
};

template <class C>
void Forward(const Norm& op, const ConstTensor& input, const ConstTensor& weight,
             const std::optional<ConstTensor>& bias, const Tensor& output, const Tensor& rstd,
             const std::optional<Tensor>& mean) {
  Reader<C> inputs(input, op.width), weights(weight, op.width), biases(bias.value_or(weight), op.width);
  Writer<C> outputs(output, op.width), rstds(rstd, 1), means(mean.value_or(rstd), 1);
  const C* w = weights.At(0, op.width);
  const C* b = biases.At(0, op.width);
  for (std::int64_t row = 0; row < op.rows; ++row) {
    const std::int64_t begin = row * op.width;
    const C* x = inputs.At(begin, op.width);
    const Statistics<C> row_is(op, x);
    C* y = outputs.At(begin, op.width);
    if (bias) {
      Each(op.width, [=](std::int64_t i) { y[i] = (x[i] - row_is.mean) * row_is.rstd * w[i] + b[i]; });
    } else {
      Each(op.width, [=](std::int64_t i) { y[i] = (x[i] - row_is.mean) * row_is.rstd * w[i]; });
    }
    outputs.Done(begin, op.width);
    *rstds.At(row, 1) = row_is.rstd;
    rstds.Done(row, 1);
    if (mean) {
      *means.At(row, 1) = row_is.mean;
      means.Done(row, 1);
    }
  }
}

template <class C>
void Backward(const Norm& op, const ConstTensor& output_gradient, const ConstTensor& input, const ConstTensor& rstd,
              const std::optional<ConstTensor>& mean, const ConstTensor& weight, const Tensor& input_gradient,
              const std::optional<Tensor>& weight_gradient, const std::optional<Tensor>& bias_gradient) {
  Reader<C> gradients(output_gradient, op.width), inputs(input, op.width), weights(weight, op.width);
  Reader<C> rstds(rstd, 1), means(mean.value_or(rstd), 1);
  Writer<C> input_gradients(input_gradient, op.width);
  RowGradient<C> dw(op, weight_gradient), db(op, bias_gradient);
  const C* w = weights.At(0, op.width);
  const C width = static_cast<C>(op.width);
  for (std::int64_t row = 0; row < op.rows; ++row) {
    const std::int64_t begin = row * op.width;
    const C* dy = gradients.At(begin, op.width);
    const C* x = inputs.At(begin, op.width);
    const C r = *rstds.At(row, 1), m = mean ? *means.At(row, 1) : C(0);
    const C along = SumOf<C>(op.width, [=](std::int64_t i) { return (x[i] - m) * r * dy[i] * w[i]; }) / width;
    const C shift = mean ? SumOf<C>(op.width, [=](std::int64_t i) { return dy[i] * w[i]; }) / width : C(0);
    dw.Add([=](std::int64_t i) { return dy[i] * (x[i] - m) * r; });
    db.Add([=](std::int64_t i) { return dy[i]; });
    C* dx = input_gradients.At(begin, op.width);
    Each(op.width, [=](std::int64_t i) { dx[i] = r * (dy[i] * w[i] - shift - (x[i] - m) * r * along); });
    input_gradients.Done(begin, op.width);
  }
  dw.Done();
  db.Done();
}

}  // namespace

NormTypes NormOutputs(const Norm& op, DType input) {
  const TensorType statistic{StatisticsOf(input), op.rows};
  return {{input, op.rows * op.width}, statistic, op.layer_norm ? statistic : TensorType{}};
}
TensorType NormInputGradientOutput(const Norm& op, DType input) { return {input, op.rows * op.width}; }
TensorType NormWeightGradientOutput(const Norm& op, DType gradients) { return {gradients, op.width}; }

void NormForward(const Norm& op, const ConstTensor& input, const ConstTensor& weight,
                 const std::optional<ConstTensor>& bias, const Tensor& output, const Tensor& rstd,
                 const std::optional<Tensor>& mean) {
  CheckMatrix(op, input.type);
  CheckMatrix(op, output.type);
  CheckRow(op, weight.type);
  TIDEMARK_CHECK(bias.has_value() == op.layer_norm && mean.has_value() == op.layer_norm);
  TIDEMARK_CHECK(rstd.type.elements == op.rows && (!mean || mean->type.elements == op.rows));
  TIDEMARK_CHECK(!bias || bias->type.elements == op.width);
  InArithmeticOf({input.type, weight.type, output.type},
                 [&]<class C>(C) { Forward<C>(op, input, weight, bias, output, rstd, mean); });
}

void NormBackward(const Norm& op, const ConstTensor& output_gradient, const ConstTensor& input, const ConstTensor& rstd,
                  const std::optional<ConstTensor>& mean, const ConstTensor& weight, const Tensor& input_gradient,
                  const std::optional<Tensor>& weight_gradient, const std::optional<Tensor>& bias_gradient) {
  CheckMatrix(op, output_gradient.type);
  CheckMatrix(op, input.type);
  CheckMatrix(op, input_gradient.type);
  CheckRow(op, weight.type);
  TIDEMARK_CHECK(mean.has_value() == op.layer_norm && (op.layer_norm || !bias_gradient));
  TIDEMARK_CHECK(rstd.type.elements == op.rows && (!mean || mean->type.elements == op.rows));
  InArithmeticOf({output_gradient.type, input.type, weight.type, input_gradient.type}, [&]<class C>(C) {
    Backward<C>(op, output_gradient, input, rstd, mean, weight, input_gradient, weight_gradient, bias_gradient);
  });
}

}  // namespace tidemark::kernels
