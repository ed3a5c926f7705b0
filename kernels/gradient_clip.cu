// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/gradient_clip_cuda.h"
#include "kernels/sum.cuh"

namespace tidemark::kernels::cuda {
namespace {

template <class C>
struct Square {
  Input<C> elements;
  template <class At>
  __host__ __device__ auto operator()(At at) const {
    return Map([](C x) { return x * x; }, elements[at]);
  }
};

template <class C>
struct StoreAt {
  Output<C> to;
  std::int64_t index;
  __host__ __device__ void operator()(C value) const { to.Set(index, value); }
};

/// Adds the squares of one part of a gradient to those of the parts before, and takes the root after the last.
template <class C>
struct StoreNorm {
  Output<C> norms;
  std::int64_t index;
  bool is_first, is_last;
  __host__ __device__ void operator()(C squares) const {
    const C total = is_first ? squares : norms[index] + squares;
    norms.Set(index, is_last ? std::sqrt(total) : total);
  }
};

/// ClipCoefficient, where the total is.
struct TakeCoefficient {
  double max_norm;
  Output<double> total;
  __host__ __device__ void operator()(std::int64_t i) const {
    const double coefficient = max_norm / (std::sqrt(total[i]) + kClipEpsilon);
    total.Set(i, coefficient > 1 ? 1 : coefficient);  // NaN for NaN
  }
};

template <class C>
struct ClipElement {
  Input<C> coefficient;
  Output<C> gradient;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    const C times = coefficient[0];
    gradient.Set(at, Map([&](C x) { return x * times; }, gradient[at]));
  }
};

}  // namespace

void GradientNorm(std::span<const ConstTensor> gradient, const Tensor& norms, std::int64_t index, const Queue& queue) {
  TIDEMARK_CHECK(index >= 0 && index < norms.type.elements);
  const ConstTensor none{{norms.type.dtype, 0}, nullptr};
  const std::span<const ConstTensor> parts = gradient.empty() ? std::span(&none, 1) : gradient;
  InArithmeticOf({parts.front().type, norms.type}, [&]<class C>(C) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      SumAll<C>(queue, parts[i].type.elements, Square<C>{parts[i]},
                StoreNorm<C>{norms, index, i == 0, i + 1 == parts.size()});
    }
  });
}

void SumOfSquares(const ConstTensor& norms, const Tensor& total, const Queue& queue) {
  TIDEMARK_CHECK(total.type.elements == 1);
  InArithmeticOf({norms.type, total.type}, [&]<class C>(C) {
    SumAll<C>(queue, norms.type.elements, Square<C>{norms}, StoreAt<C>{total, 0});
  });
}

void TakeClipCoefficient(double max_norm, const Tensor& total, const Queue& queue) {
  TIDEMARK_CHECK(total.type.elements == 1);
  EachElement(queue, 1, TakeCoefficient{max_norm, total});
}

void ClipGradient(const ConstTensor& coefficient, const Tensor& gradient, const Queue& queue) {
  TIDEMARK_CHECK(coefficient.type.elements == 1);
  InArithmeticOf({coefficient.type, gradient.type}, [&]<class C>(C) {
    EachElement(queue, gradient.type.elements, ClipElement<C>{coefficient, gradient});
  });
}

}  // namespace tidemark::kernels::cuda
