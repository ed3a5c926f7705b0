// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

constexpr double kLost = 2 * 1.5;  // the factor 1 / (1 - 0.3) and the product

template <class Body>
void EachDropout(Body body) {
  for (const std::int64_t first : {0, 4, 7, 1021}) {  // at the begin of a counter's four words, and within
    const Dropout op{.p = 0.3, .seed = 0x123456789ABCDEF0, .offset = 0xFEDCBA9876543210, .first = first};
    EachDType([&](DType dtype) {
      for (const std::int64_t n : kSizes) {
        body(op, dtype, n);
      }
    });
  }
}

void CheckForward(const Place& place) {
  EachDropout([&](const Dropout& op, DType dtype, std::int64_t n) {
    const std::vector<Operand> operands = {Read(Some(dtype, n, 1)), Written({dtype, n}, kLost),
                                           Written({DType::u8, n}, 0)};
    Compare(place, operands, &kernels::DropoutForward, &cuda::DropoutForward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckBackward(const Place& place) {
  EachDropout([&](const Dropout& op, DType dtype, std::int64_t n) {
    const Numbers x = Some(dtype, n, 1);
    Numbers y(x.type()), mask(TensorType{DType::u8, n});
    kernels::DropoutForward(op, x, y, mask);
    Compare(place, {Read(x), Read(mask), Written({dtype, n}, kLost)}, &kernels::DropoutBackward, &cuda::DropoutBackward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

}  // namespace

std::vector<Case> DropoutCases() { return {{"DropoutForward", CheckForward}, {"DropoutBackward", CheckBackward}}; }

}  // namespace tidemark::kernels::cuda
