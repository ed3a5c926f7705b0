// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear.h"

#include <vector>

#include "kernels/linear_parts.h"
#include "kernels/product.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
TensorType LinearOutput(const Linear& op, DType input, std::int64_t part) { return {input, op.rows * part}; }
TensorType LinearInputGradientOutput(const Linear& op, DType output_gradient) {
  return {output_gradient, op.rows * op.in};
}
TensorType LinearWeightGradientOutput(const Linear& op, DType gradients) { return {gradients, op.out * op.in}; }
TensorType LinearBiasGradientOutput(const Linear& op, DType gradients) { return {gradients, op.out}; }

void LinearForward(const Linear& op, const ConstTensor& input, const ConstTensor& weight,
                   const std::optional<ConstTensor>& bias, std::span<const Tensor> outputs) {
  CheckWeight(op, weight.type);
  TIDEMARK_CHECK(input.type.elements == op.rows * op.in && (!bias || bias->type.elements == op.out));
  EachPart(op, outputs, [&](const Tensor& output, std::int64_t first, std::int64_t width) {
    const ProductTerm term{WholeMatrix(input, op.in), WeightRows(op, weight, first, width, true)};
    ProductResult result{output, 0, op.rows, width, width};
    if (bias) {
      result.row = Slice(*bias, first, width);
    }
    SumOfProducts({&term, 1}, result);
  });
}

void LinearInputGradient(const Linear& op, std::span<const ConstTensor> output_gradients, const ConstTensor& weight,
                         const Tensor& input_gradient) {
  CheckWeight(op, weight.type);
  TIDEMARK_CHECK(input_gradient.type.elements == op.rows * op.in);
  std::vector<ProductTerm> terms;
  EachPart(op, output_gradients, [&](const ConstTensor& gradient, std::int64_t first, std::int64_t width) {
    terms.push_back({WholeMatrix(gradient, width), WeightRows(op, weight, first, width, false)});
  });
  SumOfProducts(terms, {input_gradient, 0, op.rows, op.in, op.in});
}

void LinearWeightGradient(const Linear& op, const ConstTensor& input, std::span<const ConstTensor> output_gradients,
                          const Tensor& weight_gradient) {
  CheckWeight(op, weight_gradient.type);
  TIDEMARK_CHECK(input.type.elements == op.rows * op.in);
  EachPart(op, output_gradients, [&](const ConstTensor& gradient, std::int64_t first, std::int64_t width) {
    const ProductTerm term{WholeMatrix(gradient, width, true), WholeMatrix(input, op.in)};
    SumOfProducts({&term, 1}, {weight_gradient, first * op.in, width, op.in, op.in, op.accumulate});
  });
}

void LinearBiasGradient(const Linear& op, std::span<const ConstTensor> output_gradients, const Tensor& bias_gradient) {
  TIDEMARK_CHECK(bias_gradient.type.elements == op.out);
  EachPart(op, output_gradients, [&](const ConstTensor& gradient, std::int64_t first, std::int64_t width) {
    InArithmeticOf({gradient.type, bias_gradient.type}, [&]<class C>(C) {
      Reader<C> rows(gradient, width);
      Writer<C> sums(bias_gradient, width);
      C* sum = op.accumulate ? sums.Present(first, width) : sums.At(first, width);
      if (!op.accumulate) {
        std::fill_n(sum, width, C(0));
      }
      for (std::int64_t row = 0; row < op.rows; ++row) {
        Each(width, [sum, addend = rows.At(row * width, width)](std::int64_t i) { sum[i] += addend[i]; });
      }
      sums.Done(first, width);
    });
  });
}

void AddBias(const Linear& op, const ConstTensor& input, const ConstTensor& bias, const Tensor& output) {
  TIDEMARK_CHECK(bias.type.elements == op.out && input.type.elements == op.rows * op.out);
  TIDEMARK_CHECK(output.type.elements == input.type.elements);
  InArithmeticOf({input.type, bias.type, output.type}, [&]<class C>(C) {
    Reader<C> inputs(input, op.out), biases(bias, op.out);
    Writer<C> outputs(output, op.out);
    const C* added = biases.At(0, op.out);
    for (std::int64_t begin = 0; begin < input.type.elements; begin += op.out) {
      Each(op.out, [to = outputs.At(begin, op.out), x = inputs.At(begin, op.out), added](std::int64_t i) {
        to[i] = x[i] + added[i];
      });
      outputs.Done(begin, op.out);
    }
  });
}

}  // namespace tidemark::kernels
