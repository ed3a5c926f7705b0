// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_linear.h"

#include <optional>

#include "kernels/pointwise.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// One expert's part of what all have.
struct Part {
  Linear linear;
  std::int64_t expert = 0, row = 0;

  template <class T>
  T Rows(const T& all, std::int64_t width) const {
    return Slice(all, row * width, linear.rows * width);
  }
  template <class T>
  T Weight(const T& all) const {
    const std::int64_t elements = linear.out * linear.in;
    return Slice(all, expert * elements, elements);
  }
};

template <class Body>
void EachExpert(const ExpertLinear& op, const ConstTensor& counts, Body body) {
  TIDEMARK_CHECK(counts.type.elements == op.experts);
  const auto* count = Elements<std::int64_t>(counts);
  std::int64_t row = 0;
  for (std::int64_t expert = 0; expert < op.experts; ++expert) {
    TIDEMARK_CHECK(count[expert] >= 0 && count[expert] <= op.rows - row);
    body(Part{{.rows = count[expert], .in = op.in, .out = op.out, .accumulate = op.accumulate}, expert, row});
    row += count[expert];
  }
  TIDEMARK_CHECK(row == op.rows);
}

}  // namespace

TensorType ExpertLinearOutput(const ExpertLinear& op, DType input) { return {input, op.rows * op.out}; }
TensorType ExpertLinearInputGradientOutput(const ExpertLinear& op, DType output_gradient) {
  return {output_gradient, op.rows * op.in};
}
TensorType ExpertLinearWeightGradientOutput(const ExpertLinear& op, DType gradients) {
  return {gradients, op.experts * op.out * op.in};
}

void ExpertLinearForward(const ExpertLinear& op, const ConstTensor& input, const ConstTensor& counts,
                         const ConstTensor& weight, const Tensor& output) {
  TIDEMARK_CHECK(weight.type.elements == op.experts * op.out * op.in && input.type.elements == op.rows * op.in);
  TIDEMARK_CHECK(output.type.elements == op.rows * op.out);
  EachExpert(op, counts, [&](const Part& part) {
    const Tensor to = part.Rows(output, op.out);
    if (part.linear.rows > 0) {
      LinearForward(part.linear, part.Rows(input, op.in), part.Weight(weight), std::nullopt, {&to, 1});
    }
  });
}

void ExpertLinearInputGradient(const ExpertLinear& op, const ConstTensor& output_gradient, const ConstTensor& counts,
                               const ConstTensor& weight, const Tensor& input_gradient) {
  TIDEMARK_CHECK(weight.type.elements == op.experts * op.out * op.in);
  TIDEMARK_CHECK(output_gradient.type.elements == op.rows * op.out && input_gradient.type.elements == op.rows * op.in);
  EachExpert(op, counts, [&](const Part& part) {
    const ConstTensor gradient = part.Rows(output_gradient, op.out);
    if (part.linear.rows > 0) {
      LinearInputGradient(part.linear, {&gradient, 1}, part.Weight(weight), part.Rows(input_gradient, op.in));
    }
  });
}

void ExpertLinearWeightGradient(const ExpertLinear& op, const ConstTensor& input, const ConstTensor& output_gradient,
                                const ConstTensor& counts, const Tensor& weight_gradient) {
  TIDEMARK_CHECK(weight_gradient.type.elements == op.experts * op.out * op.in);
  TIDEMARK_CHECK(input.type.elements == op.rows * op.in && output_gradient.type.elements == op.rows * op.out);
  EachExpert(op, counts, [&](const Part& part) {
    const ConstTensor gradient = part.Rows(output_gradient, op.out);
    if (part.linear.rows > 0) {
      LinearWeightGradient(part.linear, part.Rows(input, op.in), {&gradient, 1}, part.Weight(weight_gradient));
    } else if (!op.accumulate) {
      Zero(part.Weight(weight_gradient));
    }
  });
}

}  // namespace tidemark::kernels
