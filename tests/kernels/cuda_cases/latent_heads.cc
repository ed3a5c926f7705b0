// SPDX-License-Identifier: Apache-2.0
#include "kernels/latent_heads_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

template <class Body>
void EachHeads(Body body) {
  for (const LatentHeads& op : {LatentHeads{0, 2, 3, 4, 5}, LatentHeads{1, 1, 1, 2, 1}, LatentHeads{7, 3, 5, 4, 9},
                                LatentHeads{5, 16, 128, 64, 128}}) {
    SCOPED_TRACE(std::to_string(op.tokens) + " tokens, " + std::to_string(op.heads) + " heads");
    EachDType([&](DType dtype) { body(op, dtype); });
  }
}

void CheckJoin(const Place& place) {
  EachHeads([&](const LatentHeads& op, DType dtype) {
    Compare(place,
            {Read(Some(dtype, op.projected_elements(), 1)), Read(Some(dtype, op.common_elements(), 2)),
             Written({dtype, op.key_elements()}, 0)},
            &kernels::JoinKeys, &cuda::JoinKeys, [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckValues(const Place& place) {
  EachHeads([&](const LatentHeads& op, DType dtype) {
    Compare(place, {Read(Some(dtype, op.projected_elements(), 1)), Written({dtype, op.value_elements()}, 0)},
            &kernels::CopyValues, &cuda::CopyValues, [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
  });
}

void CheckSplit(const Place& place) {
  EachHeads([&](const LatentHeads& op, DType dtype) {
    const auto heads = static_cast<double>(op.heads);  // each added to a sum of up to as many
    Compare(place,
            {Read(Some(dtype, op.key_elements(), 1)), Read(Some(dtype, op.value_elements(), 2)),
             Written({dtype, op.projected_elements()}, 0), Written({dtype, op.common_elements()}, heads * heads)},
            &kernels::SplitKeyGradients, &cuda::SplitKeyGradients,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3]); });
  });
}

}  // namespace

std::vector<Case> LatentHeadsCases() {
  return {{"JoinKeys", CheckJoin}, {"CopyValues", CheckValues}, {"SplitKeyGradients", CheckSplit}};
}

}  // namespace tidemark::kernels::cuda
