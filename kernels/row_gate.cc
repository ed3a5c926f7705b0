// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_gate.h"

#include <vector>

#include "kernels/exponential.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

void Check(const RowGate& op, const ConstTensor& gate_input, const ConstTensor& vector, const ConstTensor& input) {
  TIDEMARK_CHECK(gate_input.type.elements == op.rows * op.in && vector.type.elements == op.in);
  TIDEMARK_CHECK(input.type.elements == op.rows * op.width);
}

/// The gradient of a row's z v, from that of its output, as it is stored. Leaves dx and the products of dy and x
/// behind.
template <class C>
class ScoreGradients {
 public:
  ScoreGradients(const RowGate& op, const ConstTensor& output_gradient, const RowGateSaved& saved,
                 const RowGateGradientTensors& to)
      : width_(op.width),
        gradients_(output_gradient, op.width),
        inputs_(saved.input, op.width),
        gates_(saved.gate, 1),
        products_read_(to.products, op.width),
        scores_read_(to.scores, 1),
        to_inputs_(to.input, op.width),
        products_(to.products, op.width),
        scores_(to.scores, 1) {}

  C Of(std::int64_t row) {
    const std::int64_t begin = row * width_;
    const C g = *gates_.At(row, 1);
    Each(width_, [=, dy = gradients_.At(begin, width_), x = inputs_.At(begin, width_),
                  dx = to_inputs_.At(begin, width_), product = products_.At(begin, width_)](std::int64_t i) {
      dx[i] = g * dy[i];
      product[i] = dy[i] * x[i];
    });
    to_inputs_.Done(begin, width_);
    products_.Done(begin, width_);
    const C* product = products_read_.At(begin, width_);
    *scores_.At(row, 1) = SumOf<C>(width_, [product](std::int64_t i) { return product[i]; }) * g * (C(1) - g);
    scores_.Done(row, 1);
    return *scores_read_.At(row, 1);
  }

 private:
  std::int64_t width_;
  Reader<C> gradients_, inputs_, gates_, products_read_, scores_read_;
  Writer<C> to_inputs_, products_, scores_;
};

template <class C>
void Backward(const RowGate& op, const ConstTensor& output_gradient, const RowGateSaved& saved,
              const RowGateGradientTensors& to) {
  ScoreGradients<C> scores(op, output_gradient, saved, to);
  Reader<C> vectors(saved.vector, op.in), rows(saved.gate_input, op.in);
  Writer<C> to_rows(to.gate_input, op.in);
  const C* v = vectors.At(0, op.in);
  std::vector<C> sum(static_cast<std::size_t>(op.in));
  for (std::int64_t row = 0; row < op.rows; ++row) {
    const C ds = scores.Of(row);
    const std::int64_t begin = row * op.in;
    Each(op.in, [=, z = rows.At(begin, op.in), dz = to_rows.At(begin, op.in), dv = sum.data()](std::int64_t i) {
      dz[i] = ds * v[i];
      dv[i] += ds * z[i];
    });
    to_rows.Done(begin, op.in);
  }
  if (to.vector) {
    TIDEMARK_CHECK(to.vector->type.elements == op.in);
    Writer<C> gradients(*to.vector, op.in);
    C* gradient = op.accumulate ? gradients.Present(0, op.in) : gradients.At(0, op.in);
    Each(op.in, [=, dv = sum.data(), add = op.accumulate](std::int64_t i) {
      gradient[i] = add ? gradient[i] + dv[i] : dv[i];
    });
    gradients.Done(0, op.in);
  }
}

}  // namespace

RowGateTypes RowGateOutputs(const RowGate& op, DType input) { return {{input, op.rows * op.width}, {input, op.rows}}; }

RowGateGradientTypes RowGateGradients(const RowGate& op, DType output_gradient) {
  const TensorType wide{output_gradient, op.rows * op.width};
  return {wide, {output_gradient, op.rows * op.in}, wide, {output_gradient, op.rows}};
}

void RowGateForward(const RowGate& op, const ConstTensor& gate_input, const ConstTensor& vector,
                    const ConstTensor& input, const Tensor& output, const Tensor& gate) {
  Check(op, gate_input, vector, input);
  TIDEMARK_CHECK(output.type.elements == input.type.elements && gate.type.elements == op.rows);
  InArithmeticOf({gate_input.type, vector.type, input.type}, [&]<class C>(C) {
    Reader<C> rows(gate_input, op.in), vectors(vector, op.in), inputs(input, op.width), stored(gate, 1);
    Writer<C> gates(gate, 1), outputs(output, op.width);
    const C* v = vectors.At(0, op.in);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      const C* z = rows.At(row * op.in, op.in);
      *gates.At(row, 1) = Sigmoid(SumOf<C>(op.in, [z, v](std::int64_t i) { return z[i] * v[i]; }));
      gates.Done(row, 1);
      const std::int64_t begin = row * op.width;
      Each(op.width, [g = *stored.At(row, 1), x = inputs.At(begin, op.width),
                      y = outputs.At(begin, op.width)](std::int64_t i) { y[i] = g * x[i]; });
      outputs.Done(begin, op.width);
    }
  });
}

void RowGateBackward(const RowGate& op, const ConstTensor& output_gradient, const RowGateSaved& saved,
                     const RowGateGradientTensors& to) {
  Check(op, saved.gate_input, saved.vector, saved.input);
  TIDEMARK_CHECK(output_gradient.type.elements == op.rows * op.width && saved.gate.type.elements == op.rows);
  TIDEMARK_CHECK(to.input.type.elements == op.rows * op.width && to.products.type.elements == op.rows * op.width);
  TIDEMARK_CHECK(to.gate_input.type.elements == op.rows * op.in && to.scores.type.elements == op.rows);
  InArithmeticOf({output_gradient.type, saved.input.type, saved.gate_input.type},
                 [&]<class C>(C) { Backward<C>(op, output_gradient, saved, to); });
}

}  // namespace tidemark::kernels
