// SPDX-License-Identifier: Apache-2.0
#include "kernels/gradient_clip.h"

#include <algorithm>
#include <cmath>

#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

template <class C>
C SquaresOf(const ConstTensor& tensor) {
  Reader<C> reader(tensor, kStretch);
  C total = 0;
  EachStretch(tensor.type.elements, [&](std::int64_t begin, std::int64_t count) {
    const C* x = reader.At(begin, count);
    total += SumOf<C>(count, [x](std::int64_t i) { return x[i] * x[i]; });
  });
  return total;
}

}  // namespace

void GradientNorm(std::span<const ConstTensor> gradient, const Tensor& norms, std::int64_t index) {
  const TensorType type = gradient.empty() ? norms.type : gradient.front().type;
  InArithmeticOf({type, norms.type}, [&]<class C>(C) {
    C squares = 0;
    for (const ConstTensor& part : gradient) {
      squares += SquaresOf<C>(part);
    }
    const C norm = std::sqrt(squares);
    TIDEMARK_CHECK(index >= 0 && index < norms.type.elements);
    Narrow(&norm, norms, index, 1);
  });
}

void SumOfSquares(const ConstTensor& norms, const Tensor& total) {
  TIDEMARK_CHECK(total.type.elements == 1);
  InArithmeticOf({norms.type, total.type}, [&]<class C>(C) {
    const C squares = SquaresOf<C>(norms);
    Narrow(&squares, total, 0, 1);
  });
}

double ClipCoefficient(double max_norm, double total) {
  const double coefficient = max_norm / (std::sqrt(total) + kClipEpsilon);
  return coefficient > 1 ? 1 : coefficient;  // NaN for NaN
}

void TakeClipCoefficient(double max_norm, const Tensor& total) {
  TIDEMARK_CHECK(total.type.elements == 1);
  double value = 0;
  Widen(total, 0, 1, &value);
  const double coefficient = ClipCoefficient(max_norm, value);
  Narrow(&coefficient, total, 0, 1);
}

void ClipGradient(const ConstTensor& coefficient, const Tensor& gradient) {
  TIDEMARK_CHECK(coefficient.type.elements == 1);
  InArithmeticOf({coefficient.type, gradient.type}, [&]<class C>(C) {
    C factor = 0;
    Widen(coefficient, 0, 1, &factor);
    Writer<C> gradients(gradient, kStretch);
    EachStretch(gradient.type.elements, [&](std::int64_t begin, std::int64_t count) {
      Each(count, [g = gradients.Present(begin, count), factor](std::int64_t i) { g[i] *= factor; });
      gradients.Done(begin, count);
    });
  });
}

}  // namespace tidemark::kernels
