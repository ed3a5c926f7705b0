// SPDX-License-Identifier: Apache-2.0
#include "kernels/eager_norm_cuda.h"
#include "kernels/glu_rows.cuh"
#include "kernels/row_weights_cuda.h"

namespace tidemark::kernels::cuda {
namespace {

template <class C, class Views>
struct WeightedGluRow {
  std::int64_t width;
  InputRows<typename Views::In> gate, up;
  Input<C> weights;
  OutputRows<typename Views::Out> output;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C w = weights[row];
    team.Each(0, width, [&](auto at) {
      output.Set(row, at, Map([w](C x, C u) { return Silu(x) * u * w; }, gate.At(row, at), up.At(row, at)));
    });
  }
};

template <class C, class Views>
struct WeightedGluBackwardRow {
  std::int64_t width;
  InputRows<typename Views::In> gate, up, output_gradient;
  Input<C> weights;
  OutputRows<typename Views::Out> gate_gradient, up_gradient;
  Output<C> weight_gradients;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C w = weights[row];
    const C sum = team.Sum<C>(0, width, [&](auto at) {
      return Map([](C dy, C x, C u) { return dy * Silu(x) * u; }, output_gradient.At(row, at), gate.At(row, at),
                 up.At(row, at));
    });
    team.Once([&] { weight_gradients.Set(row, sum); });
    const auto d_up = [w](C dy, C x) { return dy * w * Silu(x); };
    const auto d_gate = [w](C dy, C u, C x) { return dy * w * u * SiluSlope(x); };
    team.Each(0, width, [&](auto at) {
      const auto x = gate.At(row, at), u = up.At(row, at), dy = output_gradient.At(row, at);
      up_gradient.Set(row, at, Map(d_up, dy, x));
      gate_gradient.Set(row, at, Map(d_gate, dy, u, x));
    });
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
    InViewsOfRows<C>(op, {packed, output}, [&]<class Views>(Views) {
      using In = typename Views::In;
      EachRow(queue, op.rows,
              WeightedGluRow<C, Views>{op.width, GateOf<In>(op, packed), UpOf<In>(op, packed), row_weights,
                                       DenseTo<typename Views::Out>(op, output)});
    });
  });
}

void WeightedGluBackward(const Glu& op, const ConstTensor& packed, const ConstTensor& row_weights,
                         const ConstTensor& output_gradient, const Tensor& packed_gradient,
                         const Tensor& row_weight_gradients, const Queue& queue) {
  CheckPacked(op, packed.type, row_weights.type);
  CheckPacked(op, packed_gradient.type, row_weight_gradients.type);
  InArithmeticOf({packed.type, row_weights.type, output_gradient.type}, [&]<class C>(C) {
    InViewsOfRows<C>(op, {packed, output_gradient, packed_gradient}, [&]<class Views>(Views) {
      using In = typename Views::In;
      using Out = typename Views::Out;
      EachRow(queue, op.rows,
              WeightedGluBackwardRow<C, Views>{
                  op.width, GateOf<In>(op, packed), UpOf<In>(op, packed), DenseOf<In>(op, output_gradient), row_weights,
                  GateTo<Out>(op, packed_gradient), UpTo<Out>(op, packed_gradient), row_weight_gradients});
    });
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
