// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/adam_numbers.h"
#include "kernels/pointwise.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// Both moments and the decayed weight of a stretch; `apply` updates the weight at once.
template <class C>
void Moments(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
             const Tensor& second, bool apply) {
  const AdamNumbers<C> n(op);
  Reader<C> gradients(gradient, kStretch);
  Writer<C> weights(weight, kStretch), firsts(first, kStretch), seconds(second, kStretch);
  EachStretch(weight.type.elements, [&](std::int64_t begin, std::int64_t count) {
    const C* g = gradients.At(begin, count);
    C* w = weights.Present(begin, count);
    C* m = firsts.Present(begin, count);
    C* v = seconds.Present(begin, count);
    Each(count, [=](std::int64_t i) {
      w[i] *= n.keep;
      m[i] += n.to_first * (g[i] - m[i]);
      v[i] = n.beta2 * v[i] + n.to_second * g[i] * g[i];
    });
    if (apply) {
      Each(count,
           [=](std::int64_t i) { w[i] -= n.step_size * m[i] / (std::sqrt(v[i]) / n.root_of_correction + n.eps); });
    }
    weights.Done(begin, count);
    firsts.Done(begin, count);
    seconds.Done(begin, count);
  });
}

void MomentsInArithmetic(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
                         const Tensor& second, bool apply) {
  const std::int64_t elements = weight.type.elements;
  TIDEMARK_CHECK(gradient.type.elements == elements && first.type.elements == elements &&
                 second.type.elements == elements && op.step >= 1);
  InArithmeticOf({gradient.type, weight.type, first.type, second.type},
                 [&]<class C>(C) { Moments<C>(op, gradient, weight, first, second, apply); });
}

/// to = map(from), element by element.
template <class Map>
void MapElements(const ConstTensor& from, const Tensor& to, Map map) {
  TIDEMARK_CHECK(from.type.elements == to.type.elements);
  InArithmeticOf({from.type, to.type}, [&]<class C>(C) {
    Reader<C> reader(from, kStretch);
    Writer<C> writer(to, kStretch);
    EachStretch(to.type.elements, [&](std::int64_t begin, std::int64_t count) {
      Each(count,
           [map, x = reader.At(begin, count), y = writer.At(begin, count)](std::int64_t i) { y[i] = map(x[i]); });
      writer.Done(begin, count);
    });
  });
}

}  // namespace

void AdamWUpdate(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
                 const Tensor& second) {
  MomentsInArithmetic(op, gradient, weight, first, second, true);
}

void AdamWMoments(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
                  const Tensor& second) {
  MomentsInArithmetic(op, gradient, weight, first, second, false);
}

void AdamWRoot(const ConstTensor& second, const Tensor& root) {
  MapElements(second, root, [](auto v) { return std::sqrt(v); });
}

void AdamWCorrectBias(const AdamW& op, const ConstTensor& root, const Tensor& quotient) {
  MapElements(root, quotient, [divisor = AdamNumbers<double>(op).root_of_correction](auto r) {
    return r / static_cast<decltype(r)>(divisor);
  });
}

void AdamWAddEpsilon(const AdamW& op, const Tensor& denominator) {
  MapElements(denominator, denominator, [eps = op.eps](auto d) { return d + static_cast<decltype(d)>(eps); });
}

void AdamWApply(const AdamW& op, const ConstTensor& first, const ConstTensor& denominator, const Tensor& weight) {
  const std::int64_t elements = weight.type.elements;
  TIDEMARK_CHECK(first.type.elements == elements && denominator.type.elements == elements);
  InArithmeticOf({first.type, denominator.type, weight.type}, [&]<class C>(C) {
    Reader<C> firsts(first, kStretch), denominators(denominator, kStretch);
    Writer<C> weights(weight, kStretch);
    EachStretch(elements, [&](std::int64_t begin, std::int64_t count) {
      Each(count, [step = AdamNumbers<C>(op).step_size, m = firsts.At(begin, count), d = denominators.At(begin, count),
                   w = weights.Present(begin, count)](std::int64_t i) { w[i] -= step * m[i] / d[i]; });
      weights.Done(begin, count);
    });
  });
}

void SgdUpdate(const Sgd& op, const ConstTensor& gradient, const Tensor& weight) {
  Accumulate(gradient, weight, -op.lr);
}

void SgdMomentum(const Sgd& op, const ConstTensor& gradient, const Tensor& buffer) {
  TIDEMARK_CHECK(gradient.type.elements == buffer.type.elements);
  InArithmeticOf({gradient.type, buffer.type}, [&]<class C>(C) {
    Reader<C> gradients(gradient, kStretch);
    Writer<C> buffers(buffer, kStretch);
    EachStretch(buffer.type.elements, [&](std::int64_t begin, std::int64_t count) {
      Each(count, [momentum = static_cast<C>(op.momentum), g = gradients.At(begin, count),
                   b = buffers.Present(begin, count)](std::int64_t i) { b[i] = momentum * b[i] + g[i]; });
      buffers.Done(begin, count);
    });
  });
}

}  // namespace tidemark::kernels
