// SPDX-License-Identifier: Apache-2.0
#include "kernels/eager_norm_cuda.h"
#include "kernels/glu_rows.cuh"
#include "kernels/row_weights_cuda.h"

namespace tidemark::kernels::cuda {
namespace {

template <class C>
struct WeightedGluBackwardRow {
  GluBackwardRow<C, AnyViews<C>, RowWeight<C>> glu;
  Output<C> weight_gradients;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C sum = team.Sum<C>(0, glu.width, [&](auto at) {
      return Map([](C dy, C x, C u) { return dy * Silu(x) * u; }, glu.output_gradient.At(row, at), glu.gate.At(row, at),
                 glu.up.At(row, at));
    });
    team.Once([&] { weight_gradients.Set(row, sum); });
    glu(team, row);
  }
};

template <class C>
struct SumRow {
  std::int64_t width;
  Input<C> rows;
  Output<C> sums;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C sum = team.Sum<C>(row * width, (row + 1) * width, [&](auto at) { return rows[at]; });
    team.Once([&] { sums.Set(row, sum); });
  }
};

void CheckPacked(const Glu& op, const TensorType& packed, const TensorType& row_weights) {
  TIDEMARK_CHECK(packed.elements == 2 * op.rows * op.width && row_weights.elements == op.rows);
}

/// Rows of a matrix that has one for each weight.
Norm RowsOf(const TensorType& matrix, const TensorType& row_weights) {
  TIDEMARK_CHECK(row_weights.elements > 0 && matrix.elements % row_weights.elements == 0);
  return {.rows = row_weights.elements, .width = matrix.elements / row_weights.elements};
}

}  // namespace

void WeightedGluForward(const Glu& op, const ConstTensor& packed, const ConstTensor& row_weights, const Tensor& output,
                        const Queue& queue) {
  CheckPacked(op, packed.type, row_weights.type);
  InArithmeticOf({packed.type, row_weights.type, output.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            GluRow<C, AnyViews<C>, RowWeight<C>>{op.width,
                                                 {row_weights},
                                                 GateOf<Input<C>>(op, packed),
                                                 UpOf<Input<C>>(op, packed),
                                                 DenseTo<Output<C>>(op, output)});
  });
}

void WeightedGluBackward(const Glu& op, const ConstTensor& packed, const ConstTensor& row_weights,
                         const ConstTensor& output_gradient, const Tensor& packed_gradient,
                         const Tensor& row_weight_gradients, const Queue& queue) {
  CheckPacked(op, packed.type, row_weights.type);
  CheckPacked(op, packed_gradient.type, row_weight_gradients.type);
  InArithmeticOf({packed.type, row_weights.type, output_gradient.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            WeightedGluBackwardRow<C>{{op.width,
                                       {row_weights},
                                       GateOf<Input<C>>(op, packed),
                                       UpOf<Input<C>>(op, packed),
                                       DenseOf<Input<C>>(op, output_gradient),
                                       GateTo<Output<C>>(op, packed_gradient),
                                       UpTo<Output<C>>(op, packed_gradient)},
                                      row_weight_gradients});
  });
}

void WeighRows(const ConstTensor& input, const ConstTensor& row_weights, const Tensor& output, const Queue& queue) {
  NormScaleRows(RowsOf(input.type, row_weights.type), input, row_weights, output, queue);
}

void RowWeightGradients(const ConstTensor& input, const ConstTensor& output_gradient, const Tensor& products,
                        const Tensor& row_weight_gradients, const Queue& queue) {
  const Norm rows = RowsOf(input.type, row_weight_gradients.type);
  NormProduct(rows, output_gradient, input, products, queue);
  InArithmeticOf({input.type, output_gradient.type, products.type}, [&]<class C>(C) {
    EachRow(queue, rows.rows, SumRow<C>{rows.width, products, row_weight_gradients});
  });
}

}  // namespace tidemark::kernels::cuda
