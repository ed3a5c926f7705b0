// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/adam_numbers.h"
#include "kernels/optimizer_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// Both moments and the decayed weight; with `apply` the updated weight.
template <class C>
struct MomentsElement {
  using MayWait = void;
  AdamNumbers<C> n;
  bool apply;
  Input<C> gradient;
  Output<C> weight, first, second;

  template <class At>
  __host__ __device__ void operator()(At at) const {
    const auto first_moment = [&](C m, C g) { return m + n.to_first * (g - m); };
    const auto second_moment = [&](C v, C g) { return n.beta2 * v + n.to_second * g * g; };
    const auto updated = [&](C w, C m, C v) {
      const C decayed = w * n.keep;
      return apply ? decayed - n.step_size * m / (std::sqrt(v) / n.root_of_correction + n.eps) : decayed;
    };
    const auto g = gradient[at];
    const auto m = Map(first_moment, first[at], g);
    const auto v = Map(second_moment, second[at], g);
    weight.Set(at, Map(updated, weight[at], m, v));
    first.Set(at, m);
    second.Set(at, v);
  }
};

template <class C>
struct RootElement {
  Input<C> second;
  Output<C> root;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    root.Set(at, Map([](C v) { return std::sqrt(v); }, second[at]));
  }
};

template <class C>
struct DivideElement {
  Input<C> root;
  C divisor;
  Output<C> quotient;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    quotient.Set(at, Map([&](C x) { return x / divisor; }, root[at]));
  }
};

template <class C>
struct AddNumberElement {
  C number;
  Output<C> sum;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    sum.Set(at, Map([&](C x) { return x + number; }, sum[at]));
  }
};

template <class C>
struct ApplyElement {
  using MayWait = void;
  C step_size;
  Input<C> first, denominator;
  Output<C> weight;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    weight.Set(at, Map([&](C w, C m, C d) { return w - step_size * m / d; }, weight[at], first[at], denominator[at]));
  }
};

template <class C>
struct MomentumElement {
  using MayWait = void;
  C momentum;
  Input<C> gradient;
  Output<C> buffer;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    buffer.Set(at, Map([&](C b, C g) { return momentum * b + g; }, buffer[at], gradient[at]));
  }
};

void Moments(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
             const Tensor& second, bool apply, const Queue& queue) {
  const std::int64_t elements = weight.type.elements;
  TIDEMARK_CHECK(gradient.type.elements == elements && first.type.elements == elements &&
                 second.type.elements == elements && op.step >= 1);
  InArithmeticOf({gradient.type, weight.type, first.type, second.type}, [&]<class C>(C) {
    EachElement(queue, elements, MomentsElement<C>{AdamNumbers<C>(op), apply, gradient, weight, first, second});
  });
}

}  // namespace

void AdamWUpdate(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
                 const Tensor& second, const Queue& queue) {
  Moments(op, gradient, weight, first, second, true, queue);
}

void AdamWMoments(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
                  const Tensor& second, const Queue& queue) {
  Moments(op, gradient, weight, first, second, false, queue);
}

void AdamWRoot(const ConstTensor& second, const Tensor& root, const Queue& queue) {
  TIDEMARK_CHECK(second.type.elements == root.type.elements);
  InArithmeticOf({second.type, root.type}, [&]<class C>(C) {
    EachElement(queue, root.type.elements, RootElement<C>{second, root});
  });
}

void AdamWCorrectBias(const AdamW& op, const ConstTensor& root, const Tensor& quotient, const Queue& queue) {
  TIDEMARK_CHECK(root.type.elements == quotient.type.elements);
  InArithmeticOf({root.type, quotient.type}, [&]<class C>(C) {
    EachElement(queue, quotient.type.elements, DivideElement<C>{root, AdamNumbers<C>(op).root_of_correction, quotient});
  });
}

void AdamWAddEpsilon(const AdamW& op, const Tensor& denominator, const Queue& queue) {
  InArithmeticOf({denominator.type}, [&]<class C>(C) {
    EachElement(queue, denominator.type.elements, AddNumberElement<C>{static_cast<C>(op.eps), denominator});
  });
}

void AdamWApply(const AdamW& op, const ConstTensor& first, const ConstTensor& denominator, const Tensor& weight,
                const Queue& queue) {
  const std::int64_t elements = weight.type.elements;
  TIDEMARK_CHECK(first.type.elements == elements && denominator.type.elements == elements);
  InArithmeticOf({first.type, denominator.type, weight.type}, [&]<class C>(C) {
    EachElement(queue, elements, ApplyElement<C>{AdamNumbers<C>(op).step_size, first, denominator, weight});
  });
}

void SgdUpdate(const Sgd& op, const ConstTensor& gradient, const Tensor& weight, const Queue& queue) {
  Accumulate(gradient, weight, -op.lr, queue);
}

void SgdMomentum(const Sgd& op, const ConstTensor& gradient, const Tensor& buffer, const Queue& queue) {
  TIDEMARK_CHECK(gradient.type.elements == buffer.type.elements);
  InArithmeticOf({gradient.type, buffer.type}, [&]<class C>(C) {
    EachElement(queue, buffer.type.elements, MomentumElement<C>{static_cast<C>(op.momentum), gradient, buffer});
  });
}

}  // namespace tidemark::kernels::cuda
