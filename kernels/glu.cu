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
  std::int64_t width;
  __host__ __device__ std::int64_t Place(std::int64_t i) const { return begin(i / width) + i % width; }
};
template <class C>
struct InputRows : Rows<Input<C>> {
  __host__ __device__ C operator[](std::int64_t i) const { return this->elements[this->Place(i)]; }
};
template <class C>
struct OutputRows : Rows<Output<C>> {
  __host__ __device__ void Set(std::int64_t i, C value) const { this->elements.Set(this->Place(i), value); }
};

template <class C>
InputRows<C> GateOf(const Glu& op, const ConstTensor& tensor) {
  return {{tensor, Gate(op, tensor.type), op.width}};
}
template <class C>
InputRows<C> UpOf(const Glu& op, const ConstTensor& tensor) {
  return {{tensor, Up(op, tensor.type), op.width}};
}
template <class C>
OutputRows<C> GateTo(const Glu& op, const Tensor& tensor) {
  return {{tensor, Gate(op, tensor.type), op.width}};
}
template <class C>
OutputRows<C> UpTo(const Glu& op, const Tensor& tensor) {
  return {{tensor, Up(op, tensor.type), op.width}};
}

template <class C>
__host__ __device__ C SiluSlope(C x) {
  const C sigmoid = Sigmoid(x);
  return sigmoid * (C(1) + x * (C(1) - sigmoid));
}

template <class C>
struct GluElement {
  InputRows<C> gate, up;
  Output<C> output;
  __host__ __device__ void operator()(std::int64_t i) const {
    const C x = gate[i];
    output.Set(i, x * Sigmoid(x) * up[i]);
  }
};

template <class C>
struct GluBackwardElement {
  InputRows<C> gate, up;
  Input<C> output_gradient;
  OutputRows<C> gate_gradient, up_gradient;
  __host__ __device__ void operator()(std::int64_t i) const {
    const C x = gate[i], dy = output_gradient[i], d_silu = dy * up[i];
    up_gradient.Set(i, dy * x * Sigmoid(x));
    gate_gradient.Set(i, d_silu * SiluSlope(x));
  }
};

template <class C>
struct SiluElement {
  InputRows<C> gate;
  Output<C> silu;
  __host__ __device__ void operator()(std::int64_t i) const {
    const C x = gate[i];
    silu.Set(i, x * Sigmoid(x));
  }
};

template <class C>
struct ProductElement {
  Input<C> silu;
  InputRows<C> up;
  Output<C> output;
  __host__ __device__ void operator()(std::int64_t i) const { output.Set(i, silu[i] * up[i]); }
};

template <class C>
struct ProductBackwardElement {
  Input<C> output_gradient, silu;
  InputRows<C> up;
  Output<C> silu_gradient;
  OutputRows<C> up_gradient;
  __host__ __device__ void operator()(std::int64_t i) const {
    const C dy = output_gradient[i], s = silu[i], u = up[i];
    silu_gradient.Set(i, dy * u);
    up_gradient.Set(i, dy * s);
  }
};

template <class C>
struct SiluBackwardElement {
  Input<C> silu_gradient;
  InputRows<C> gate;
  OutputRows<C> gate_gradient;
  __host__ __device__ void operator()(std::int64_t i) const {
    gate_gradient.Set(i, silu_gradient[i] * SiluSlope(gate[i]));
  }
};

}  // namespace

void GluForward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& output,
                const Queue& queue) {
  CheckDense(op, output.type);
  InArithmeticOf({gate.type, up.type, output.type}, [&]<class C>(C) {
    EachElement(queue, output.type.elements, GluElement<C>{GateOf<C>(op, gate), UpOf<C>(op, up), output});
  });
}

void GluBackward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const ConstTensor& output_gradient,
                 const Tensor& gate_gradient, const Tensor& up_gradient, const Queue& queue) {
  CheckDense(op, output_gradient.type);
  InArithmeticOf({gate.type, up.type, output_gradient.type}, [&]<class C>(C) {
    EachElement(queue, output_gradient.type.elements,
                GluBackwardElement<C>{GateOf<C>(op, gate), UpOf<C>(op, up), output_gradient,
                                      GateTo<C>(op, gate_gradient), UpTo<C>(op, up_gradient)});
  });
}

void SiluForward(const Glu& op, const ConstTensor& gate, const Tensor& silu, const Queue& queue) {
  CheckDense(op, silu.type);
  InArithmeticOf({gate.type, silu.type}, [&]<class C>(C) {
    EachElement(queue, silu.type.elements, SiluElement<C>{GateOf<C>(op, gate), silu});
  });
}

void ProductForward(const Glu& op, const ConstTensor& silu, const ConstTensor& up, const Tensor& output,
                    const Queue& queue) {
  CheckDense(op, silu.type);
  CheckDense(op, output.type);
  InArithmeticOf({silu.type, up.type, output.type}, [&]<class C>(C) {
    EachElement(queue, output.type.elements, ProductElement<C>{silu, UpOf<C>(op, up), output});
  });
}

void ProductBackward(const Glu& op, const ConstTensor& output_gradient, const ConstTensor& silu, const ConstTensor& up,
                     const Tensor& silu_gradient, const Tensor& up_gradient, const Queue& queue) {
  CheckDense(op, output_gradient.type);
  CheckDense(op, silu.type);
  CheckDense(op, silu_gradient.type);
  InArithmeticOf({output_gradient.type, silu.type, up.type}, [&]<class C>(C) {
    EachElement(
        queue, silu.type.elements,
        ProductBackwardElement<C>{output_gradient, silu, UpOf<C>(op, up), silu_gradient, UpTo<C>(op, up_gradient)});
  });
}

void SiluBackward(const Glu& op, const ConstTensor& silu_gradient, const ConstTensor& gate, const Tensor& gate_gradient,
                  const Queue& queue) {
  CheckDense(op, silu_gradient.type);
  InArithmeticOf({silu_gradient.type, gate.type}, [&]<class C>(C) {
    EachElement(queue, silu_gradient.type.elements,
                SiluBackwardElement<C>{silu_gradient, GateOf<C>(op, gate), GateTo<C>(op, gate_gradient)});
  });
}

}  // namespace tidemark::kernels::cuda
