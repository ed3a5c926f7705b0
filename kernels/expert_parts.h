// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "base/check.h"
#include "kernels/expert_linear.h"

namespace tidemark::kernels {

// How expert_linear.h's operands lie, and what becomes of each expert's, for its versions on a processor and on a GPU.

/// One expert's part of what all have.
struct ExpertPart {
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
void EachExpert(const ExpertLinear& op, std::span<const std::int64_t> counts, Body body) {
  TIDEMARK_CHECK(std::ssize(counts) == op.experts);
  std::int64_t row = 0;
  for (std::int64_t expert = 0; expert < op.experts; ++expert) {
    const std::int64_t rows = counts[static_cast<std::size_t>(expert)];
    TIDEMARK_CHECK(rows >= 0 && rows <= op.rows - row);
    body(ExpertPart{{.rows = rows, .in = op.in, .out = op.out, .accumulate = op.accumulate}, expert, row});
    row += rows;
  }
  TIDEMARK_CHECK(row == op.rows);
}

/// `forward` as LinearForward.
template <class Forward>
void EachExpertForward(const ExpertLinear& op, const ConstTensor& input, std::span<const std::int64_t> counts,
                       const ConstTensor& weight, const Tensor& output, Forward forward) {
  TIDEMARK_CHECK(weight.type.elements == op.experts * op.out * op.in && input.type.elements == op.rows * op.in);
  TIDEMARK_CHECK(output.type.elements == op.rows * op.out);
  EachExpert(op, counts, [&](const ExpertPart& part) {
    const Tensor to = part.Rows(output, op.out);
    if (part.linear.rows > 0) {
      forward(part.linear, part.Rows(input, op.in), part.Weight(weight), std::optional<ConstTensor>(),
              std::span(&to, 1));
    }
  });
}

/// `gradient` as LinearInputGradient.
template <class Gradient>
void EachExpertInputGradient(const ExpertLinear& op, const ConstTensor& output_gradient,
                             std::span<const std::int64_t> counts, const ConstTensor& weight,
                             const Tensor& input_gradient, Gradient gradient) {
  TIDEMARK_CHECK(weight.type.elements == op.experts * op.out * op.in);
  TIDEMARK_CHECK(output_gradient.type.elements == op.rows * op.out && input_gradient.type.elements == op.rows * op.in);
  EachExpert(op, counts, [&](const ExpertPart& part) {
    const ConstTensor from = part.Rows(output_gradient, op.out);
    if (part.linear.rows > 0) {
      gradient(part.linear, std::span(&from, 1), part.Weight(weight), part.Rows(input_gradient, op.in));
    }
  });
}

/// `gradient` as LinearWeightGradient, `zero` as Zero.
template <class Gradient, class MakeZero>
void EachExpertWeightGradient(const ExpertLinear& op, const ConstTensor& input, const ConstTensor& output_gradient,
                              std::span<const std::int64_t> counts, const Tensor& weight_gradient, Gradient gradient,
                              MakeZero zero) {
  TIDEMARK_CHECK(weight_gradient.type.elements == op.experts * op.out * op.in);
  TIDEMARK_CHECK(input.type.elements == op.rows * op.in && output_gradient.type.elements == op.rows * op.out);
  EachExpert(op, counts, [&](const ExpertPart& part) {
    const ConstTensor from = part.Rows(output_gradient, op.out);
    if (part.linear.rows > 0) {
      gradient(part.linear, part.Rows(input, op.in), std::span(&from, 1), part.Weight(weight_gradient));
    } else if (!op.accumulate) {
      zero(part.Weight(weight_gradient));
    }
  });
}

}  // namespace tidemark::kernels
