// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_weights.h"

#include "kernels/exponential.h"
#include "kernels/glu_halves.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

void CheckPacked(const Glu& op, const TensorType& packed, const TensorType& dense, const TensorType& weights) {
  TIDEMARK_CHECK(packed.elements == 2 * op.rows * op.width && dense.elements == op.rows * op.width);
  TIDEMARK_CHECK(weights.elements == op.rows);
}

/// Of a row, once for each row that has a weight.
std::int64_t WidthOf(const TensorType& matrix, const TensorType& row_weights) {
  TIDEMARK_CHECK(row_weights.elements > 0 && matrix.elements % row_weights.elements == 0);
  return matrix.elements / row_weights.elements;
}

}  // namespace

void WeightedGluForward(const Glu& op, const ConstTensor& packed, const ConstTensor& row_weights,
                        const Tensor& output) {
  CheckPacked(op, packed.type, output.type, row_weights.type);
  InArithmeticOf({packed.type, row_weights.type, output.type}, [&]<class C>(C) {
    const Half gate_at = Gate(op, packed.type), up_at = Up(op, packed.type);
    Reader<C> gates(packed, op.width), ups(packed, op.width), weights(row_weights, 1);
    Writer<C> outputs(output, op.width);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      Each(op.width,
           [w = *weights.At(row, 1), x = gates.At(gate_at(row), op.width), u = ups.At(up_at(row), op.width),
            y = outputs.At(row * op.width, op.width)](std::int64_t i) { y[i] = x[i] * Sigmoid(x[i]) * u[i] * w; });
      outputs.Done(row * op.width, op.width);
    }
  });
}

void WeightedGluBackward(const Glu& op, const ConstTensor& packed, const ConstTensor& row_weights,
                         const ConstTensor& output_gradient, const Tensor& packed_gradient,
                         const Tensor& row_weight_gradients) {
  CheckPacked(op, packed.type, output_gradient.type, row_weights.type);
  CheckPacked(op, packed_gradient.type, output_gradient.type, row_weight_gradients.type);
  InArithmeticOf({packed.type, row_weights.type, output_gradient.type}, [&]<class C>(C) {
    const Half gate_at = Gate(op, packed.type), up_at = Up(op, packed.type);
    Reader<C> gates(packed, op.width), ups(packed, op.width), weights(row_weights, 1);
    Reader<C> gradients(output_gradient, op.width);
    Writer<C> d_gates(packed_gradient, op.width), d_ups(packed_gradient, op.width), d_weights(row_weight_gradients, 1);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      const C w = *weights.At(row, 1);
      const C* x = gates.At(gate_at(row), op.width);
      const C* u = ups.At(up_at(row), op.width);
      const C* dy = gradients.At(row * op.width, op.width);
      *d_weights.At(row, 1) =
          SumOf<C>(op.width, [x, u, dy](std::int64_t i) { return dy[i] * x[i] * Sigmoid(x[i]) * u[i]; });
      Each(op.width, [=, dx = d_gates.At(gate_at(row), op.width), du = d_ups.At(up_at(row), op.width)](std::int64_t i) {
        const C s = Sigmoid(x[i]);
        du[i] = dy[i] * w * x[i] * s;
        dx[i] = dy[i] * w * u[i] * s * (C(1) + x[i] * (C(1) - s));
      });
      d_gates.Done(gate_at(row), op.width);
      d_ups.Done(up_at(row), op.width);
      d_weights.Done(row, 1);
    }
  });
}

void WeighRows(const ConstTensor& input, const ConstTensor& row_weights, const Tensor& output) {
  const std::int64_t width = WidthOf(input.type, row_weights.type);
  TIDEMARK_CHECK(output.type.elements == input.type.elements);
  InArithmeticOf({input.type, row_weights.type, output.type}, [&]<class C>(C) {
    Reader<C> inputs(input, width), weights(row_weights, 1);
    Writer<C> outputs(output, width);
    for (std::int64_t row = 0; row < row_weights.type.elements; ++row) {
      Each(width, [w = *weights.At(row, 1), x = inputs.At(row * width, width),
                   y = outputs.At(row * width, width)](std::int64_t i) { y[i] = w * x[i]; });
      outputs.Done(row * width, width);
    }
  });
}

void RowWeightGradients(const ConstTensor& input, const ConstTensor& output_gradient, const Tensor& products,
                        const Tensor& row_weight_gradients) {
  const std::int64_t width = WidthOf(input.type, row_weight_gradients.type);
  TIDEMARK_CHECK(output_gradient.type.elements == input.type.elements);
  TIDEMARK_CHECK(products.type.elements == input.type.elements);
  InArithmeticOf({input.type, output_gradient.type, products.type}, [&]<class C>(C) {
    Reader<C> inputs(input, width), gradients(output_gradient, width), stored(products, width);
    Writer<C> to(products, width), sums(row_weight_gradients, 1);
    for (std::int64_t row = 0; row < row_weight_gradients.type.elements; ++row) {
      Each(width, [x = inputs.At(row * width, width), dy = gradients.At(row * width, width),
                   p = to.At(row * width, width)](std::int64_t i) { p[i] = dy[i] * x[i]; });
      to.Done(row * width, width);
      *sums.At(row, 1) = SumOf<C>(width, [p = stored.At(row * width, width)](std::int64_t i) { return p[i]; });
      sums.Done(row, 1);
    }
  });
}

}  // namespace tidemark::kernels
