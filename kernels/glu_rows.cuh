// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "kernels/functions.cuh"
#include "kernels/glu_halves.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {

// Gated activations row by row: their operands, and the whole of one in one kernel, with a weight for each row or
// without.

inline void CheckDense(const Glu& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows * op.width); }

/// An operand with where its rows begin: dense, or half of a packed one.
template <class View>
struct Rows {
  View elements;
  Half begin;
};
template <class In>
struct InputRows : Rows<In> {
  template <class Column>
  __host__ __device__ auto At(std::int64_t row, Column column) const {
    return this->elements[column + this->begin(row)];
  }
};
template <class Out>
struct OutputRows : Rows<Out> {
  template <class Column, class Value>
  __host__ __device__ void Set(std::int64_t row, Column column, const Value& value) const {
    this->elements.Set(column + this->begin(row), value);
  }
};

template <class In>
InputRows<In> GateOf(const Glu& op, const ConstTensor& tensor) {
  return {{tensor, Gate(op, tensor.type)}};
}
template <class In>
InputRows<In> UpOf(const Glu& op, const ConstTensor& tensor) {
  return {{tensor, Up(op, tensor.type)}};
}
template <class Out>
OutputRows<Out> GateTo(const Glu& op, const Tensor& tensor) {
  return {{tensor, Gate(op, tensor.type)}};
}
template <class Out>
OutputRows<Out> UpTo(const Glu& op, const Tensor& tensor) {
  return {{tensor, Up(op, tensor.type)}};
}

template <class In>
InputRows<In> DenseOf(const Glu& op, const ConstTensor& tensor) {
  CheckDense(op, tensor.type);
  return {{tensor, {op.width, 0}}};
}
template <class Out>
OutputRows<Out> DenseTo(const Glu& op, const Tensor& tensor) {
  CheckDense(op, tensor.type);
  return {{tensor, {op.width, 0}}};
}

/// Calls `body` with the views of these operands: typed where their rows are of packs alone.
template <class C, class Body>
void InViewsOfRows(const Glu& op, std::initializer_list<ConstTensor> tensors, Body body) {
  if (op.width % kPack == 0) {
    InViewsOf<C>(tensors, body);
  } else {
    body(AnyViews<C>{});
  }
}

template <class C>
__host__ __device__ C Silu(C x) {
  return x * Sigmoid(x);
}
template <class C>
__host__ __device__ C SiluSlope(C x) {
  const C sigmoid = Sigmoid(x);
  return sigmoid * (C(1) + x * (C(1) - sigmoid));
}

template <class C>
struct NoWeight {
  __host__ __device__ C operator()(std::int64_t) const { return C(1); }
};
template <class C>
struct RowWeight {
  Input<C> weights;
  __host__ __device__ C operator()(std::int64_t row) const { return weights[row]; }
};

template <class C, class Views, class Weight = NoWeight<C>>
struct GluRow {
  std::int64_t width;
  Weight weight;
  InputRows<typename Views::In> gate, up;
  OutputRows<typename Views::Out> output;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C w = weight(row);
    team.Each(0, width, [&](auto at) {
      output.Set(row, at, Map([w](C x, C u) { return Silu(x) * u * w; }, gate.At(row, at), up.At(row, at)));
    });
  }
};

template <class C, class Views, class Weight = NoWeight<C>>
struct GluBackwardRow {
  std::int64_t width;
  Weight weight;
  InputRows<typename Views::In> gate, up, output_gradient;
  OutputRows<typename Views::Out> gate_gradient, up_gradient;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C w = weight(row);
    const auto d_up = [w](C dy, C x) { return dy * w * Silu(x); };
    const auto d_gate = [w](C dy, C u, C x) { return dy * w * u * SiluSlope(x); };
    team.Each(0, width, [&](auto at) {
      const auto x = gate.At(row, at), u = up.At(row, at), dy = output_gradient.At(row, at);
      up_gradient.Set(row, at, Map(d_up, dy, x));
      gate_gradient.Set(row, at, Map(d_gate, dy, u, x));
    });
  }
};

}  // namespace tidemark::kernels::cuda
