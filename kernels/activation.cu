// SPDX-License-Identifier: Apache-2.0
#include <numbers>

#include "kernels/activation_cuda.h"
#include "kernels/functions.cuh"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

template <class C>
struct Relu {
  __host__ __device__ static C Value(C x) { return x <= C(0) ? C(0) : x; }
  __host__ __device__ static C Slope(C y) { return y <= C(0) ? C(0) : C(1); }
};

template <class C>
struct Gelu {
  __host__ __device__ static C Share(C x) { return C(0.5) * std::erfc(-x * static_cast<C>(1 / std::numbers::sqrt2)); }
  __host__ __device__ static C Value(C x) { return x * Share(x); }
  __host__ __device__ static C Slope(C x) {
    constexpr C kDensityAtZero = static_cast<C>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return Share(x) + x * kDensityAtZero * std::exp(C(-0.5) * x * x);
  }
};

/// (1 + tanh u) / 2 is the sigmoid of 2 u.
template <class C>
struct GeluTanh {
  static constexpr C kRoot = static_cast<C>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  static constexpr C kCubic = static_cast<C>(0.044715);
  __host__ __device__ static C Share(C x) { return Sigmoid(C(2) * kRoot * (x + kCubic * x * x * x)); }
  __host__ __device__ static C Value(C x) { return x * Share(x); }
  __host__ __device__ static C Slope(C x) {
    const C share = Share(x);
    return share + x * share * (C(1) - share) * C(2) * kRoot * (C(1) + C(3) * kCubic * x * x);
  }
};

template <class C, class Function>
struct ForwardElement {
  Input<C> input;
  Output<C> output;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    output.Set(at, Map([](C x) { return Function::Value(x); }, input[at]));
  }
};

template <class C, class Function>
struct BackwardElement {
  Input<C> saved, output_gradient;
  Output<C> input_gradient;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    input_gradient.Set(at, Map([](C dy, C x) { return dy * Function::Slope(x); }, output_gradient[at], saved[at]));
  }
};

/// Calls `body` with a value of the activation's type.
template <class C, class Body>
void OfKind(Activation kind, Body body) {
  switch (kind) {
    case Activation::relu:
      return body(Relu<C>{});
    case Activation::gelu:
      return body(Gelu<C>{});
    case Activation::gelu_tanh:
      return body(GeluTanh<C>{});
  }
  TIDEMARK_CHECK(false && "unknown activation");
}

}  // namespace

void ActivationForward(Activation kind, const ConstTensor& input, const Tensor& output, const Queue& queue) {
  TIDEMARK_CHECK(input.type.elements == output.type.elements);
  InArithmeticOf({input.type, output.type}, [&]<class C>(C) {
    OfKind<C>(kind, [&]<class Function>(Function) {
      EachElement(queue, output.type.elements, ForwardElement<C, Function>{input, output});
    });
  });
}

void ActivationBackward(Activation kind, const ConstTensor& saved, const ConstTensor& output_gradient,
                        const Tensor& input_gradient, const Queue& queue) {
  const std::int64_t elements = input_gradient.type.elements;
  TIDEMARK_CHECK(saved.type.elements == elements && output_gradient.type.elements == elements);
  InArithmeticOf({saved.type, output_gradient.type, input_gradient.type}, [&]<class C>(C) {
    OfKind<C>(kind, [&]<class Function>(Function) {
      EachElement(queue, elements, BackwardElement<C, Function>{saved, output_gradient, input_gradient});
    });
  });
}

}  // namespace tidemark::kernels::cuda
