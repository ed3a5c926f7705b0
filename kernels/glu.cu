// SPDX-License-Identifier: Apache-2.0
#include "kernels/functions.cuh"
#include "kernels/glu_cuda.h"
#include "kernels/glu_halves.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

void CheckDense(const Glu& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows * op.width); }

/// An operand with where its rows begin: dense, or half of a packed one.
template <class View>
struct Rows {
  View elements;
  Half begin;
};
template <class C>
struct InputRows : Rows<Input<C>> {
  __host__ __device__ C At(std::int64_t row, std::int64_t i) const { return this->elements[this->begin(row) + i]; }
};
template <class C>
struct OutputRows : Rows<Output<C>> {
  __host__ __device__ void Set(std::int64_t row, std::int64_t i, C value) const {
    this->elements.Set(this->begin(row) + i, value);
  }
};

template <class C>
InputRows<C> GateOf(const Glu& op, const ConstTensor& tensor) {
  return {{tensor, Gate(op, tensor.type)}};
}
template <class C>
InputRows<C> UpOf(const Glu& op, const ConstTensor& tensor) {
  return {{tensor, Up(op, tensor.type)}};
}
template <class C>
OutputRows<C> GateTo(const Glu& op, const Tensor& tensor) {
  return {{tensor, Gate(op, tensor.type)}};
}
template <class C>
OutputRows<C> UpTo(const Glu& op, const Tensor& tensor) {
  return {{tensor, Up(op, tensor.type)}};
}

template <class C>
InputRows<C> DenseOf(const Glu& op, const ConstTensor& tensor) {
  CheckDense(op, tensor.type);
  return {{tensor, {op.width, 0}}};
}
template <class C>
OutputRows<C> DenseTo(const Glu& op, const Tensor& tensor) {
  CheckDense(op, tensor.type);
  return {{tensor, {op.width, 0}}};
}

template <class C>
__host__ __device__ C SiluSlope(C x) {
  const C sigmoid = Sigmoid(x);
  return sigmoid * (C(1) + x * (C(1) - sigmoid));
}

template <class C>
struct GluRow {
  std::int64_t width;
  InputRows<C> gate, up;
  OutputRows<C> output;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(width, [&](std::int64_t i) {
      const C x = gate.At(row, i);
      output.Set(row, i, x * Sigmoid(x) * up.At(row, i));
    });
  }
};

template <class C>
struct GluBackwardRow {
  std::int64_t width;
  InputRows<C> gate, up, output_gradient;
  OutputRows<C> gate_gradient, up_gradient;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(width, [&](std::int64_t i) {
      const C x = gate.At(row, i), dy = output_gradient.At(row, i), d_silu = dy * up.At(row, i);
      up_gradient.Set(row, i, dy * x * Sigmoid(x));
      gate_gradient.Set(row, i, d_silu * SiluSlope(x));
    });
  }
};

template <class C>
struct SiluRow {
  std::int64_t width;
  InputRows<C> gate;
  OutputRows<C> silu;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(width, [&](std::int64_t i) {
      const C x = gate.At(row, i);
      silu.Set(row, i, x * Sigmoid(x));
    });
  }
};

template <class C>
struct ProductRow {
  std::int64_t width;
  InputRows<C> silu, up;
  OutputRows<C> output;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(width, [&](std::int64_t i) { output.Set(row, i, silu.At(row, i) * up.At(row, i)); });
  }
};

template <class C>
struct ProductBackwardRow {
  std::int64_t width;
  InputRows<C> output_gradient, silu, up;
  OutputRows<C> silu_gradient, up_gradient;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(width, [&](std::int64_t i) {
      const C dy = output_gradient.At(row, i), s = silu.At(row, i), u = up.At(row, i);
      silu_gradient.Set(row, i, dy * u);
      up_gradient.Set(row, i, dy * s);
    });
  }
};

template <class C>
struct SiluBackwardRow {
  std::int64_t width;
  InputRows<C> silu_gradient, gate;
  OutputRows<C> gate_gradient;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(width, [&](std::int64_t i) {
      gate_gradient.Set(row, i, silu_gradient.At(row, i) * SiluSlope(gate.At(row, i)));
    });
  }
};

template <class C>
struct JoinRow {
  std::int64_t width;
  InputRows<C> gate, up;
  OutputRows<C> packed_gate, packed_up;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(width, [&](std::int64_t i) {
      packed_gate.Set(row, i, gate.At(row, i));
      packed_up.Set(row, i, up.At(row, i));
    });
  }
};

}  // namespace

void GluForward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& output,
                const Queue& queue) {
  InArithmeticOf({gate.type, up.type, output.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, GluRow<C>{op.width, GateOf<C>(op, gate), UpOf<C>(op, up), DenseTo<C>(op, output)});
  });
}

void GluBackward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const ConstTensor& output_gradient,
                 const Tensor& gate_gradient, const Tensor& up_gradient, const Queue& queue) {
  InArithmeticOf({gate.type, up.type, output_gradient.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            GluBackwardRow<C>{op.width, GateOf<C>(op, gate), UpOf<C>(op, up), DenseOf<C>(op, output_gradient),
                              GateTo<C>(op, gate_gradient), UpTo<C>(op, up_gradient)});
  });
}

void SiluForward(const Glu& op, const ConstTensor& gate, const Tensor& silu, const Queue& queue) {
  InArithmeticOf({gate.type, silu.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, SiluRow<C>{op.width, GateOf<C>(op, gate), DenseTo<C>(op, silu)});
  });
}

void ProductForward(const Glu& op, const ConstTensor& silu, const ConstTensor& up, const Tensor& output,
                    const Queue& queue) {
  InArithmeticOf({silu.type, up.type, output.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, ProductRow<C>{op.width, DenseOf<C>(op, silu), UpOf<C>(op, up), DenseTo<C>(op, output)});
  });
}

void ProductBackward(const Glu& op, const ConstTensor& output_gradient, const ConstTensor& silu, const ConstTensor& up,
                     const Tensor& silu_gradient, const Tensor& up_gradient, const Queue& queue) {
  InArithmeticOf({output_gradient.type, silu.type, up.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            ProductBackwardRow<C>{op.width, DenseOf<C>(op, output_gradient), DenseOf<C>(op, silu), UpOf<C>(op, up),
                                  DenseTo<C>(op, silu_gradient), UpTo<C>(op, up_gradient)});
  });
}

void SiluBackward(const Glu& op, const ConstTensor& silu_gradient, const ConstTensor& gate, const Tensor& gate_gradient,
                  const Queue& queue) {
  InArithmeticOf({silu_gradient.type, gate.type}, [&]<class C>(C) {
    EachRow(
        queue, op.rows,
        SiluBackwardRow<C>{op.width, DenseOf<C>(op, silu_gradient), GateOf<C>(op, gate), GateTo<C>(op, gate_gradient)});
  });
}

void JoinHalves(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& packed,
                const Queue& queue) {
  InArithmeticOf({gate.type, up.type, packed.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            JoinRow<C>{op.width, DenseOf<C>(op, gate), DenseOf<C>(op, up), GateTo<C>(op, packed), UpTo<C>(op, packed)});
  });
}

}  // namespace tidemark::kernels::cuda
