// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>

#include "kernels/norm_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

void CheckMatrix(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows * op.width); }
void CheckRow(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.width); }

template <class C>
struct ForwardRow {
  std::int64_t width;
  bool layer_norm;
  C eps;
  Input<C> input, weight, bias;
  Output<C> output, rstds, means;

  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * width, end = begin + width;
    const C count = static_cast<C>(width);
    const C mean = layer_norm ? team.Sum<C>(begin, end, [&](auto at) { return input[at]; }) / count : C(0);
    const auto square = [&](C x) { return (x - mean) * (x - mean); };
    const C variance = team.Sum<C>(begin, end, [&](auto at) { return Map(square, input[at]); }) / count;
    const C rstd = C(1) / std::sqrt(variance + eps);
    const auto scaled = [&](C x, C w) { return (x - mean) * rstd * w; };
    const auto biased = [&](C x, C w, C b) { return scaled(x, w) + b; };
    team.Each(begin, end, [&](auto at) {
      const auto x = input[at], w = weight[at - begin];
      if (layer_norm) {
        output.Set(at, Map(biased, x, w, bias[at - begin]));
      } else {
        output.Set(at, Map(scaled, x, w));
      }
    });
    team.Each(1, [&](std::int64_t) {
      rstds.Set(row, rstd);
      if (layer_norm) {
        means.Set(row, mean);
      }
    });
  }
};

template <class C>
struct BackwardRow {
  std::int64_t width;
  bool layer_norm;
  Input<C> gradient, input, rstds, means, weight;
  Output<C> input_gradient;

  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * width, end = begin + width;
    const C rstd = rstds[row], mean = layer_norm ? means[row] : C(0), count = static_cast<C>(width);
    const auto slope = [&](C x, C dy, C w) { return (x - mean) * rstd * dy * w; };
    const C along = team.Sum<C>(begin, end, [&](auto at) {
      return Map(slope, input[at], gradient[at], weight[at - begin]);
    }) / count;
    const auto product = [&](auto at) { return Map(std::multiplies<>(), gradient[at], weight[at - begin]); };
    const C shift = layer_norm ? team.Sum<C>(begin, end, product) / count : C(0);
    const auto dx = [&](C x, C dy, C w) { return rstd * (dy * w - shift - (x - mean) * rstd * along); };
    team.Each(begin, end,
              [&](auto at) { input_gradient.Set(at, Map(dx, input[at], gradient[at], weight[at - begin])); });
  }
};

/// A column's gradient: of the weight, or of the bias.
template <class C>
struct WeightColumn {
  std::int64_t width;
  bool layer_norm, of_bias, accumulate;
  Input<C> gradient, input, rstds, means;
  Output<C> sums;

  template <class At>
  __host__ __device__ auto Term(std::int64_t row, At column) const {
    const auto at = column + row * width;
    if (of_bias) {
      return gradient[at];
    }
    const C rstd = rstds[row], mean = layer_norm ? means[row] : C(0);
    return Map([&](C dy, C x) { return dy * (x - mean) * rstd; }, gradient[at], input[at]);
  }
  __host__ __device__ void Store(std::int64_t column, C sum) const {
    sums.Set(column, accumulate ? sums[column] + sum : sum);
  }
};

}  // namespace

void NormForward(const Norm& op, const ConstTensor& input, const ConstTensor& weight,
                 const std::optional<ConstTensor>& bias, const Tensor& output, const Tensor& rstd,
                 const std::optional<Tensor>& mean, const Queue& queue) {
  CheckMatrix(op, input.type);
  CheckMatrix(op, output.type);
  CheckRow(op, weight.type);
  TIDEMARK_CHECK(bias.has_value() == op.layer_norm && mean.has_value() == op.layer_norm);
  TIDEMARK_CHECK(rstd.type.elements == op.rows && (!mean || mean->type.elements == op.rows));
  TIDEMARK_CHECK(!bias || bias->type.elements == op.width);
  InArithmeticOf({input.type, weight.type, output.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            ForwardRow<C>{op.width, op.layer_norm, static_cast<C>(op.eps), input, weight, bias.value_or(weight), output,
                          rstd, mean.value_or(rstd)});
  });
}

void NormBackward(const Norm& op, const ConstTensor& output_gradient, const ConstTensor& input, const ConstTensor& rstd,
                  const std::optional<ConstTensor>& mean, const ConstTensor& weight, const Tensor& input_gradient,
                  const std::optional<Tensor>& weight_gradient, const std::optional<Tensor>& bias_gradient,
                  const Queue& queue) {
  CheckMatrix(op, output_gradient.type);
  CheckMatrix(op, input.type);
  CheckMatrix(op, input_gradient.type);
  CheckRow(op, weight.type);
  TIDEMARK_CHECK(mean.has_value() == op.layer_norm && (op.layer_norm || !bias_gradient));
  TIDEMARK_CHECK(rstd.type.elements == op.rows && (!mean || mean->type.elements == op.rows));
  const ConstTensor means = mean.value_or(rstd);
  InArithmeticOf({output_gradient.type, input.type, weight.type, input_gradient.type}, [&]<class C>(C) {
    for (const bool of_bias : {false, true}) {
      if (const std::optional<Tensor>& sums = of_bias ? bias_gradient : weight_gradient) {
        CheckRow(op, sums->type);
        EachColumn<C>(queue, op.rows, op.width,
                      WeightColumn<C>{op.width, op.layer_norm, of_bias, op.accumulate, output_gradient, input, rstd,
                                      means, *sums});
      }
    }
    EachRow(queue, op.rows,
            BackwardRow<C>{op.width, op.layer_norm, output_gradient, input, rstd, means, weight, input_gradient});
  });
}

}  // namespace tidemark::kernels::cuda
