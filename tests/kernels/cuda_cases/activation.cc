// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// An exponential or error function loses up to 5 units in the last place and what its argument lost; with the products
/// around it less than 32 roundings, of numbers up to 2.
constexpr double kLost = 32 * 2;

template <class Body>
void EachActivation(Body body) {
  for (const Activation kind : {Activation::relu, Activation::gelu, Activation::gelu_tanh}) {
    SCOPED_TRACE(static_cast<int>(kind));
    EachDType([&](DType dtype) {
      for (const std::int64_t n : kSizes) {
        body(kind, dtype, n);
      }
    });
  }
}

void CheckForward(const Place& place) {
  EachActivation([&](Activation kind, DType dtype, std::int64_t n) {
    Compare(place, {Read(Some(dtype, n, 1)), Written({dtype, n}, kLost)}, &kernels::ActivationForward,
            &cuda::ActivationForward, [&](auto run, const Tensors& t) { run(kind, t[0], t[1]); });
  });
}

void CheckBackward(const Place& place) {
  EachActivation([&](Activation kind, DType dtype, std::int64_t n) {
    const std::vector<Operand> operands = {Read(Some(dtype, n, 1)), Read(Some(dtype, n, 2)),
                                           Written({dtype, n}, kLost)};
    Compare(place, operands, &kernels::ActivationBackward, &cuda::ActivationBackward,
            [&](auto run, const Tensors& t) { run(kind, t[0], t[1], t[2]); });
  });
}

}  // namespace

std::vector<Case> ActivationCases() {
  return {{"ActivationForward", CheckForward}, {"ActivationBackward", CheckBackward}};
}

}  // namespace tidemark::kernels::cuda
