// SPDX-License-Identifier: Apache-2.0
#include "kernels/columns.cuh"
#include "kernels/eager_norm_cuda.h"
#include "kernels/functions.cuh"
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

template <class C>
struct GateInputRow {
  std::int64_t in;
  Input<C> scores, vector;
  Output<C> gradient;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * in;
    const C score = scores[row];
    team.Each(begin, begin + in,
              [&](auto at) { gradient.Set(at, Map([score](C v) { return score * v; }, vector[at - begin])); });
  }
};

template <class C>
struct VectorColumn {
  std::int64_t in;
  bool accumulate;
  Input<C> scores, gate_input;
  Output<C> gradient;
  template <class At>
  __host__ __device__ auto Term(std::int64_t row, At column) const {
    const C score = scores[row];
    return Map([score](C z) { return score * z; }, gate_input[column + row * in]);
  }
  __host__ __device__ void Store(std::int64_t column, C sum) const {
    gradient.Set(column, accumulate ? gradient[column] + sum : sum);
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
    EachRow(queue, op.rows, GateInputRow<C>{op.in, to.scores, saved.vector, to.gate_input});
    if (to.vector) {
      TIDEMARK_CHECK(to.vector->type.elements == op.in);
      EachColumn<C>(queue, op.rows, op.in,
                    VectorColumn<C>{op.in, op.accumulate, to.scores, saved.gate_input, *to.vector});
    }
  });
}

}  // namespace tidemark::kernels::cuda
