// SPDX-License-Identifier: Apache-2.0
#include "kernels/eager_norm_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

template <class Body>
void EachNorm(Body body) {
  for (const RowsOf& m : kMatrices) {
    SCOPED_TRACE(std::to_string(m.rows) + " rows of " + std::to_string(m.width));
    EachDType([&](DType dtype) { body(Norm{.rows = m.rows, .width = m.width, .eps = 0.01}, dtype); });
  }
}

void CheckProduct(const Place& place) {
  EachNorm([&](const Norm& op, DType dtype) {
    const std::int64_t n = op.rows * op.width;
    Compare(place, {Read(Some(dtype, n, 1)), Read(Some(dtype, n, 2)), Written({dtype, n}, 1)}, &kernels::NormProduct,
            &cuda::NormProduct, [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckReciprocalRoot(const Place& place) {
  EachNorm([&](const Norm& op, DType dtype) {  // of numbers above 1/2: up to 1.5, and half of what the sum loses
    Compare(place,
            {Read(SomePositive(dtype, op.rows * op.width, 1)),
             Written({StatisticsOf(dtype), op.rows}, (SumLost(op.width) + 6) * 1.5)},
            &kernels::NormReciprocalRoot, &cuda::NormReciprocalRoot,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
  });
}

void CheckScaleRows(const Place& place) {
  EachNorm([&](const Norm& op, DType dtype) {
    const std::int64_t n = op.rows * op.width;
    Compare(place, {Read(Some(dtype, n, 1)), Read(Some(DType::fp32, op.rows, 2)), Written({dtype, n}, 1)},
            &kernels::NormScaleRows, &cuda::NormScaleRows,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckScaleColumns(const Place& place) {
  EachNorm([&](const Norm& op, DType dtype) {
    const std::int64_t n = op.rows * op.width;
    Compare(place, {Read(Some(dtype, n, 1)), Read(Some(dtype, op.width, 2)), Written({dtype, n}, 1)},
            &kernels::NormScaleColumns, &cuda::NormScaleColumns,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckColumnSums(const Place& place) {
  const auto check = [&](const Norm& norm, DType dtype) {
    for (const bool accumulate : {false, true}) {
      Norm op = norm;
      op.accumulate = accumulate;
      const double rows = static_cast<double>(op.rows);
      Compare(place,
              {Read(Some(dtype, op.rows * op.width, 1)), Updated(Some(dtype, op.width, 2), (rows + 2) * (rows + 1))},
              &kernels::ColumnSums, &cuda::ColumnSums, [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
    }
  };
  EachNorm(check);
  for (const std::int64_t width : {5, 13, 72}) {  // less than a pack, not only packs, and two tiles
    EachDType([&](DType dtype) { check({.rows = kSharedRows, .width = width, .eps = 0.01}, dtype); });
  }
}

void CheckRstdGradient(const Place& place) {
  EachNorm([&](const Norm& op, DType dtype) {  // a mean times a cube
    Compare(place,
            {Read(Some(dtype, op.rows * op.width, 1)), Read(Some(StatisticsOf(dtype), op.rows, 2)),
             Written({StatisticsOf(dtype), op.rows}, SumLost(op.width) + 6)},
            &kernels::NormRstdGradient, &cuda::NormRstdGradient,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

}  // namespace

std::vector<Case> EagerNormCases() {
  return {{"NormProduct", CheckProduct},     {"NormReciprocalRoot", CheckReciprocalRoot},
          {"NormScaleRows", CheckScaleRows}, {"NormScaleColumns", CheckScaleColumns},
          {"ColumnSums", CheckColumnSums},   {"NormRstdGradient", CheckRstdGradient}};
}

}  // namespace tidemark::kernels::cuda
