// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_merge.h"

#include <cmath>

#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

template <class C>
void Merge(const AttentionMerge& op, const ConstTensor& part, const ConstTensor& part_lse, const Tensor& output,
           const Tensor& lse) {
  const std::int64_t size = op.head_size;
  Reader<C> parts(part, size), part_lses(part_lse, 1);
  Writer<C> outputs(output, size), lses(lse, 1);
  for (std::int64_t row = 0; row < op.rows; ++row) {
    const C theirs = *part_lses.At(row, 1);
    C* const sum = lses.Present(row, 1);
    const C largest = *sum > theirs ? *sum : theirs;
    const C own = std::exp(*sum - largest), other = std::exp(theirs - largest), total = own + other;
    const C* x = parts.At(row * size, size);
    C* o = outputs.Present(row * size, size);
    Each(size, [=, keep = own / total, take = other / total](std::int64_t i) { o[i] = keep * o[i] + take * x[i]; });
    *sum = largest + std::log(total);
    outputs.Done(row * size, size);
    lses.Done(row, 1);
  }
}

}  // namespace

void MergeAttention(const AttentionMerge& op, const ConstTensor& part, const ConstTensor& part_lse,
                    const Tensor& output, const Tensor& lse) {
  TIDEMARK_CHECK(part.type.elements == op.rows * op.head_size && output.type.elements == part.type.elements);
  TIDEMARK_CHECK(part_lse.type.elements == op.rows && lse.type.elements == op.rows);
  InArithmeticOf({part.type, output.type}, [&]<class C>(C) { Merge<C>(op, part, part_lse, output, lse); });
}

}  // namespace tidemark::kernels
