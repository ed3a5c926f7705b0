// SPDX-License-Identifier: Apache-2.0
#include "kernels/eager_norm_cuda.h"
#include "kernels/functions.cuh"
#include "kernels/linear_cuda.h"
#include "kernels/row_gate_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

Norm RowsOf(const RowGate& op) { return {.rows = op.rows, .width = op.width}; }

template <class C>
struct GateRow {
  std::int64_t in;
  Input<C> gate_input, vector;
  Output<C> gate;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * in;
    const C score = team.Sum<C>(
        0, in, [&](auto at) { return Map([](C z, C v) { return z * v; }, gate_input[at + begin], vector[at]); });
    team.Once([&] { gate.Set(row, Sigmoid(score)); });
  }
};

template <class C>
struct ScoreRow {
  std::int64_t width;
  Input<C> products, gate;
  Output<C> scores;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C sum = team.Sum<C>(row * width, (row + 1) * width, [&](auto at) { return products[at]; });
    const C g = gate[row];
    team.Once([&] { scores.Set(row, sum * g * (C(1) - g)); });
  }
};

}  // namespace

void RowGateForward(const RowGate& op, const ConstTensor& gate_input, const ConstTensor& vector,
                    const ConstTensor& input, const Tensor& output, const Tensor& gate, const Queue& queue) {
  TIDEMARK_CHECK(gate_input.type.elements == op.rows * op.in && vector.type.elements == op.in);
  TIDEMARK_CHECK(gate.type.elements == op.rows);
  InArithmeticOf({gate_input.type, vector.type, input.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, GateRow<C>{op.in, gate_input, vector, gate});
  });
  NormScaleRows(RowsOf(op), input, gate, output, queue);
}

void RowGateBackward(const RowGate& op, const ConstTensor& output_gradient, const RowGateSaved& saved,
                     const RowGateGradientTensors& to, const Queue& queue) {
  TIDEMARK_CHECK(saved.gate_input.type.elements == op.rows * op.in && saved.vector.type.elements == op.in);
  TIDEMARK_CHECK(to.gate_input.type.elements == op.rows * op.in && to.scores.type.elements == op.rows);
  NormScaleRows(RowsOf(op), output_gradient, saved.gate, to.input, queue);
  NormProduct(RowsOf(op), output_gradient, saved.input, to.products, queue);
  InArithmeticOf({output_gradient.type, saved.input.type, saved.gate_input.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, ScoreRow<C>{op.width, to.products, saved.gate, to.scores});
  });
  // The score is a linear layer of one output.
  const Linear score{.rows = op.rows, .in = op.in, .out = 1, .accumulate = op.accumulate};
  const ConstTensor gradient = to.scores;
  LinearInputGradient(score, {&gradient, 1}, saved.vector, to.gate_input, queue);
  if (to.vector) {
    LinearWeightGradient(score, saved.gate_input, {&gradient, 1}, *to.vector, queue);
  }
}

}  // namespace tidemark::kernels::cuda
