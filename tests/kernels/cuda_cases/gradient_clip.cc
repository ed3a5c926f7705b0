// SPDX-License-Identifier: Apache-2.0
#include "kernels/gradient_clip_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// Of a square root of a sum of n squares, at most sqrt(n): half of what the sum loses, which a team's share of a long
/// tensor and the truth's stretches of 1024 both keep below n / 256 + 80.
double NormLost(std::int64_t n) {
  const double terms = static_cast<double>(n);
  return (terms / 256 + 80) / 2 * std::sqrt(terms);
}

void CheckNorm(const Place& place) {
  EachDType([&](DType dtype) {
    for (const std::int64_t n : {0, 1, 33, 257, 5003, 100003}) {  // the last: several teams
      const std::vector<Operand> operands = {Read(Some(dtype, n, 1)), Read(Some(dtype, 700, 2)),
                                             Updated(Some(StatisticsOf(dtype), 5, 3), NormLost(n + 700))};
      Compare(place, operands, &kernels::GradientNorm, &cuda::GradientNorm, [](auto run, const Tensors& t) {
        const ConstTensor both[] = {t[0], t[1]};
        run(std::span<const ConstTensor>(both).first(1), t[2], 0);
        run(std::span<const ConstTensor>(both), t[2], 2);
        run(std::span<const ConstTensor>(), t[2], 4);
      });
    }
  });
}

void CheckSumOfSquares(const Place& place) {
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    for (const std::int64_t n : kSizes) {
      const double lost = (SumLost(n) + 80) * static_cast<double>(n);
      Compare(place, {Read(Some(dtype, n, 1)), Written({dtype, 1}, lost)}, &kernels::SumOfSquares, &cuda::SumOfSquares,
              [](auto run, const Tensors& t) { run(t[0], t[1]); });
    }
  }
}

void CheckCoefficient(const Place& place) {
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    for (const double max_norm : {0.5, 10.0}) {
      Compare(place, {Updated(Numbers(dtype, {2}), 4)}, &kernels::TakeClipCoefficient, &cuda::TakeClipCoefficient,
              [&](auto run, const Tensors& t) { run(max_norm, t[0]); });
    }
  }
}

void CheckClip(const Place& place) {
  EachDType([&](DType dtype) {
    for (const std::int64_t n : kSizes) {
      Compare(place, {Read(Some(StatisticsOf(dtype), 1, 1)), Updated(Some(dtype, n, 2), 1)}, &kernels::ClipGradient,
              &cuda::ClipGradient, [](auto run, const Tensors& t) { run(t[0], t[1]); });
    }
  });
}

}  // namespace

std::vector<Case> GradientClipCases() {
  return {{"GradientNorm", CheckNorm},
          {"SumOfSquares", CheckSumOfSquares},
          {"TakeClipCoefficient", CheckCoefficient},
          {"ClipGradient", CheckClip}};
}

}  // namespace tidemark::kernels::cuda
