// SPDX-License-Identifier: Apache-2.0
#include "kernels/normal_cuda.h"

#include <array>

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// The radius is below 8.7, so that an eighth of it is of size 1. Its logarithm and root lose 3 roundings, the cosine 2
/// and those of its angle, which is up to 2 pi and has been rounded twice: 3 + 2 + 2 * 6.3, and the two products.
constexpr double kLost = 20;

void CheckDrawNormal(const Place& place) {
  for (const auto& [columns, stride, skipped] :
       {std::array<std::int64_t, 3>{1 << 20, 1 << 20, 0}, {7, 21, 0}, {7, 21, 10}, {300, 301, 5}}) {
    const Normal op{.key = 0x123456789ABCDEF0,
                    .deviation = 0.125,
                    .first = std::int64_t{1} << 33,
                    .columns = columns,
                    .stride = stride,
                    .skipped = skipped};
    EachDType([&](DType dtype) {
      for (const std::int64_t n : kSizes) {
        Compare(place, {Written({dtype, n}, kLost)}, &kernels::DrawNormal, &cuda::DrawNormal,
                [&](auto run, const Tensors& t) { run(op, t[0]); });
      }
    });
  }
}

}  // namespace

std::vector<Case> NormalCases() { return {{"DrawNormal", CheckDrawNormal}}; }

}  // namespace tidemark::kernels::cuda
