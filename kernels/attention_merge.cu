// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/attention_merge_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// e^lse and e^part of one row, in units of e^(the larger).
template <class C>
struct Sum {
  C largest, own, part;

  __host__ __device__ Sum(C lse, C part_lse)
      : largest(lse > part_lse ? lse : part_lse), own(std::exp(lse - largest)), part(std::exp(part_lse - largest)) {}
  __host__ __device__ C total() const { return own + part; }
};

/// A head of a token.
template <class C>
struct MergeOutputs {
  std::int64_t head_size;
  Input<C> part, part_lse, lse;
  Output<C> output;

  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * head_size;
    const Sum<C> sum(lse[row], part_lse[row]);
    const C keep = sum.own / sum.total(), take = sum.part / sum.total();
    team.Each(begin, begin + head_size, [&](auto at) {
      output.Set(at, Map([&](C o, C x) { return keep * o + take * x; }, output[at], part[at]));
    });
  }
};

template <class C>
struct MergeSums {
  Input<C> part_lse;
  Output<C> lse;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    const auto merged = [](C own, C part) {
      const Sum<C> sum(own, part);
      return sum.largest + std::log(sum.total());
    };
    lse.Set(at, Map(merged, lse[at], part_lse[at]));
  }
};

}  // namespace

void MergeAttention(const AttentionMerge& op, const ConstTensor& part, const ConstTensor& part_lse,
                    const Tensor& output, const Tensor& lse, const Queue& queue) {
  TIDEMARK_CHECK(part.type.elements == op.rows * op.head_size && output.type.elements == part.type.elements);
  TIDEMARK_CHECK(part_lse.type.elements == op.rows && lse.type.elements == op.rows);
  InArithmeticOf({part.type, output.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, MergeOutputs<C>{op.head_size, part, part_lse, lse, output});
    EachElement(queue, op.rows, MergeSums<C>{part_lse, lse});  // behind those who have read it
  });
}

}  // namespace tidemark::kernels::cuda
