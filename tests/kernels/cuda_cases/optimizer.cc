// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

constexpr AdamW kAdamW{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 0.5, .weight_decay = 0.2, .step = 3};
constexpr Sgd kSgd{.lr = 0.1, .momentum = 0.8};
constexpr double kMoment = 4 * 2;  // numbers up to 2, four roundings
/// A step of 0.1 / 0.488 |m| / (sqrt(v) / 0.378 + 1/2) is at most 0.41, and loses what m does, half of what v does,
/// and six more; then the difference of two numbers up to 1.5.
constexpr double kWeight = (kMoment + 10) * 0.41 + 3 * 1.5;

template <class Body>
void EachSize(Body body) {
  EachDType([&](DType dtype) {
    for (const std::int64_t n : kSizes) {
      body(dtype, n);
    }
  });
}

/// Gradients are bf16 in all of them, or of the states' dtype.
std::vector<Operand> States(DType gradient, DType dtype, std::int64_t n) {
  return {Read(Some(gradient, n, 1)), Updated(Some(dtype, n, 2), kWeight), Updated(Some(dtype, n, 3), kMoment),
          Updated(SomePositive(dtype, n, 4), kMoment)};
}

template <class Truth, class Tested>
void CheckMomentsBy(const Place& place, Truth truth, Tested tested) {
  EachSize([&](DType dtype, std::int64_t n) {
    for (const DType gradient : {DType::bf16, dtype}) {
      Compare(place, States(gradient, dtype, n), truth, tested,
              [](auto run, const Tensors& t) { run(kAdamW, t[0], t[1], t[2], t[3]); });
    }
  });
}

void CheckUpdate(const Place& place) { CheckMomentsBy(place, &kernels::AdamWUpdate, &cuda::AdamWUpdate); }
void CheckMoments(const Place& place) { CheckMomentsBy(place, &kernels::AdamWMoments, &cuda::AdamWMoments); }

void CheckRoot(const Place& place) {
  EachSize([&](DType dtype, std::int64_t n) {
    Compare(place, {Read(SomePositive(dtype, n, 1)), Written({dtype, n}, 2)}, &kernels::AdamWRoot, &cuda::AdamWRoot,
            [](auto run, const Tensors& t) { run(t[0], t[1]); });
  });
}

void CheckCorrectBias(const Place& place) {
  EachSize([&](DType dtype, std::int64_t n) {  // divides by 0.378, itself rounded
    Compare(place, {Read(Some(dtype, n, 1)), Written({dtype, n}, 2 / 0.378)}, &kernels::AdamWCorrectBias,
            &cuda::AdamWCorrectBias, [](auto run, const Tensors& t) { run(kAdamW, t[0], t[1]); });
    Compare(place, {Updated(Some(dtype, n, 1), 2 / 0.378)}, &kernels::AdamWCorrectBias, &cuda::AdamWCorrectBias,
            [](auto run, const Tensors& t) { run(kAdamW, t[0], t[0]); });
  });
}

void CheckAddEpsilon(const Place& place) {
  EachSize([&](DType dtype, std::int64_t n) {
    Compare(place, {Updated(Some(dtype, n, 1), 2 * 1.5)}, &kernels::AdamWAddEpsilon, &cuda::AdamWAddEpsilon,
            [](auto run, const Tensors& t) { run(kAdamW, t[0]); });
  });
}

void CheckApply(const Place& place) {
  EachSize([&](DType dtype, std::int64_t n) {
    const std::vector<Operand> operands = {Read(Some(dtype, n, 1)), Read(SomePositive(dtype, n, 2)),
                                           Updated(Some(dtype, n, 3), kWeight)};
    Compare(place, operands, &kernels::AdamWApply, &cuda::AdamWApply,
            [](auto run, const Tensors& t) { run(kAdamW, t[0], t[1], t[2]); });
  });
}

void CheckSgd(const Place& place) {
  EachSize([&](DType dtype, std::int64_t n) {
    Compare(place, {Read(Some(DType::bf16, n, 1)), Updated(Some(dtype, n, 2), 3 * 1.1)}, &kernels::SgdUpdate,
            &cuda::SgdUpdate, [](auto run, const Tensors& t) { run(kSgd, t[0], t[1]); });
  });
}

void CheckMomentum(const Place& place) {
  EachSize([&](DType dtype, std::int64_t n) {
    Compare(place, {Read(Some(DType::bf16, n, 1)), Updated(Some(dtype, n, 2), 3 * 1.8)}, &kernels::SgdMomentum,
            &cuda::SgdMomentum, [](auto run, const Tensors& t) { run(kSgd, t[0], t[1]); });
  });
}

}  // namespace

std::vector<Case> OptimizerCases() {
  return {{"AdamWUpdate", CheckUpdate},
          {"AdamWMoments", CheckMoments},
          {"AdamWRoot", CheckRoot},
          {"AdamWCorrectBias", CheckCorrectBias},
          {"AdamWAddEpsilon", CheckAddEpsilon},
          {"AdamWApply", CheckApply},
          {"SgdUpdate", CheckSgd},
          {"SgdMomentum", CheckMomentum}};
}

}  // namespace tidemark::kernels::cuda
