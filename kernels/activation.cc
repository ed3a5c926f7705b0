// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include <cmath>
#include <numbers>

#include "kernels/exponential.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

template <class C>
struct Relu {
  static C Value(C x) { return x <= C(0) ? C(0) : x; }
  static C Slope(C y) { return y <= C(0) ? C(0) : C(1); }
};

template <class C>
struct Gelu {
  static C Share(C x) { return C(0.5) * std::erfc(-x * static_cast<C>(1 / std::numbers::sqrt2)); }
  static C Value(C x) { return x * Share(x); }
  static C Slope(C x) {
    constexpr C kDensityAtZero = static_cast<C>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return Share(x) + x * kDensityAtZero * Exp(C(-0.5) * x * x);
  }
};

/// (1 + tanh u) / 2 is the sigmoid of 2 u.
template <class C>
struct GeluTanh {
  static constexpr C kRoot = static_cast<C>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  static constexpr C kCubic = static_cast<C>(0.044715);
  static C Share(C x) { return Sigmoid(C(2) * kRoot * (x + kCubic * x * x * x)); }
  static C Value(C x) { return x * Share(x); }
  static C Slope(C x) {
    const C share = Share(x);
    return share + x * share * (C(1) - share) * C(2) * kRoot * (C(1) + C(3) * kCubic * x * x);
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

TensorType ActivationOutput(const TensorType& input) { return input; }

void ActivationForward(Activation kind, const ConstTensor& input, const Tensor& output) {
  TIDEMARK_CHECK(input.type.elements == output.type.elements);
  InArithmeticOf({input.type, output.type}, [&]<class C>(C) {
    Reader<C> inputs(input, kStretch);
    Writer<C> outputs(output, kStretch);
    OfKind<C>(kind, [&]<class Function>(Function) {
      EachStretch(output.type.elements, [&](std::int64_t begin, std::int64_t count) {
        Each(count, [x = inputs.At(begin, count), y = outputs.At(begin, count)](std::int64_t i) {
          y[i] = Function::Value(x[i]);
        });
        outputs.Done(begin, count);
      });
    });
  });
}

void ActivationBackward(Activation kind, const ConstTensor& saved, const ConstTensor& output_gradient,
                        const Tensor& input_gradient) {
  const std::int64_t elements = input_gradient.type.elements;
  TIDEMARK_CHECK(saved.type.elements == elements && output_gradient.type.elements == elements);
  InArithmeticOf({saved.type, output_gradient.type, input_gradient.type}, [&]<class C>(C) {
    Reader<C> inputs(saved, kStretch), gradients(output_gradient, kStretch);
    Writer<C> outputs(input_gradient, kStretch);
    OfKind<C>(kind, [&]<class Function>(Function) {
      EachStretch(elements, [&](std::int64_t begin, std::int64_t count) {
        Each(count, [x = inputs.At(begin, count), dy = gradients.At(begin, count),
                     dx = outputs.At(begin, count)](std::int64_t i) { dx[i] = dy[i] * Function::Slope(x[i]); });
        outputs.Done(begin, count);
      });
    });
  });
}

}  // namespace tidemark::kernels
