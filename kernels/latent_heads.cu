// SPDX-License-Identifier: Apache-2.0
#include "kernels/latent_heads_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// An element of heads of which the first `own` are one tensor's, `apart` from head to head there, and the `rest`
/// another's that `sharing` heads have in common.
template <class C>
struct JoinHead {
  std::int64_t own, rest, apart, sharing;
  Input<C> first, last;
  Output<C> joined;

  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t width = own + rest, head = i / width, at = i % width;
    joined.Set(i, at < own ? first[head * apart + at] : last[head / sharing * rest + at - own]);
  }
};

/// An element of a value.
template <class C>
struct CopyValue {
  LatentHeads op;
  Input<C> projected;
  Output<C> values;

  __host__ __device__ void operator()(std::int64_t i) const {
    values.Set(i, projected[i / op.values * (op.own + op.values) + op.own + i % op.values]);
  }
};

/// An element that all heads of a token share: its gradients, one head after the other.
template <class C>
struct SumOverHeads {
  LatentHeads op;
  Input<C> keys;
  Output<C> common;

  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t width = op.own + op.shared, first = i / op.shared * op.heads;
    C sum = 0;
    for (std::int64_t head = first; head < first + op.heads; ++head) {
      sum += keys[head * width + op.own + i % op.shared];
    }
    common.Set(i, sum);
  }
};

}  // namespace

void JoinKeys(const LatentHeads& op, const ConstTensor& projected, const ConstTensor& common, const Tensor& keys,
              const Queue& queue) {
  TIDEMARK_CHECK(projected.type.elements == op.projected_elements() && keys.type.elements == op.key_elements());
  TIDEMARK_CHECK(common.type.elements == op.common_elements());
  InArithmeticOf({projected.type, common.type}, [&]<class C>(C) {
    EachElement(queue, op.key_elements(),
                JoinHead<C>{op.own, op.shared, op.own + op.values, op.heads, projected, common, keys});
  });
}

void CopyValues(const LatentHeads& op, const ConstTensor& projected, const Tensor& values, const Queue& queue) {
  TIDEMARK_CHECK(projected.type.elements == op.projected_elements() && values.type.elements == op.value_elements());
  InArithmeticOf({projected.type, values.type}, [&]<class C>(C) {
    EachElement(queue, op.value_elements(), CopyValue<C>{op, projected, values});
  });
}

void SplitKeyGradients(const LatentHeads& op, const ConstTensor& key_gradient, const ConstTensor& value_gradient,
                       const Tensor& projected_gradient, const Tensor& common_gradient, const Queue& queue) {
  TIDEMARK_CHECK(key_gradient.type.elements == op.key_elements());
  TIDEMARK_CHECK(value_gradient.type.elements == op.value_elements());
  TIDEMARK_CHECK(projected_gradient.type.elements == op.projected_elements());
  TIDEMARK_CHECK(common_gradient.type.elements == op.common_elements());
  InArithmeticOf({key_gradient.type, value_gradient.type}, [&]<class C>(C) {
    EachElement(
        queue, op.projected_elements(),
        JoinHead<C>{op.own, op.values, op.own + op.shared, 1, key_gradient, value_gradient, projected_gradient});
    EachElement(queue, op.common_elements(), SumOverHeads<C>{op, key_gradient, common_gradient});
  });
}

}  // namespace tidemark::kernels::cuda
