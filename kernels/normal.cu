// SPDX-License-Identifier: Apache-2.0
#include "kernels/normal_cuda.h"
#include "kernels/normal_number.cuh"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

template <class C>
struct NormalElement {
  Normal op;
  Output<C> to;
  __host__ __device__ void operator()(std::int64_t i) const { to.Set(i, static_cast<C>(NormalNumber(op, i))); }
};

}  // namespace

void DrawNormal(const Normal& op, const Tensor& to, const Queue& queue) {
  InArithmeticOf({to.type}, [&]<class C>(C) { EachElement(queue, to.type.elements, NormalElement<C>{op, to}); });
}

}  // namespace tidemark::kernels::cuda
