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
  AdamNumbers<C> n;
  bool apply;
  Input<C> gradient;
  Output<C> weight, first, second;

  __host__ __device__ void operator()(std::int64_t i) const {
    const C g = gradient[i], decayed = weight[i] * n.keep;
    const C m = first[i] + n.to_first * (g - first[i]);
    const C v = n.beta2 * second[i] + n.to_second * g * g;
    weight.Set(i, apply ? decayed - n.step_size * m / (std::sqrt(v) / n.root_of_correction + n.eps) : decayed);
    first.Set(i, m);
    second.Set(i, v);
  }
};

template <class C>
struct RootElement {
  Input<C> second;
  Output<C> root;
  __host__ __device__ void operator()(std::int64_t i) const { root.Set(i, std::sqrt(second[i])); }
};

template <class C>
struct DivideElement {
  Input<C> root;
  C divisor;
  Output<C> quotient;
  __host__ __device__ void operator()(std::int64_t i) const { quotient.Set(i, root[i] / divisor); }
};

template <class C>
struct AddNumberElement {
  C number;
  Output<C> sum;
  __host__ __device__ void operator()(std::int64_t i) const { sum.Set(i, sum[i] + number); }
};

template <class C>
struct ApplyElement {
  C step_size;
  Input<C> first, denominator;
  Output<C> weight;
  __host__ __device__ void operator()(std::int64_t i) const {
    weight.Set(i, weight[i] - step_size * first[i] / denominator[i]);
  }
};

template <class C>
struct MomentumElement {
  C momentum;
  Input<C> gradient;
  Output<C> buffer;
  __host__ __device__ void operator()(std::int64_t i) const { buffer.Set(i, momentum * buffer[i] + gradient[i]); }
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

void SgdMomentumUpdate(const Sgd& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& buffer,
                       const Queue& queue) {
  SgdMomentum(op, gradient, buffer, queue);
  SgdUpdate(op, buffer, weight, queue);
}

void SgdMomentum(const Sgd& op, const ConstTensor& gradient, const Tensor& buffer, const Queue& queue) {
  TIDEMARK_CHECK(gradient.type.elements == buffer.type.elements);
  InArithmeticOf({gradient.type, buffer.type}, [&]<class C>(C) {
    EachElement(queue, buffer.type.elements, MomentumElement<C>{static_cast<C>(op.momentum), gradient, buffer});
  });
}

}  // namespace tidemark::kernels::cuda
