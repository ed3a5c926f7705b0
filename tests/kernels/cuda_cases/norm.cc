// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm_cuda.h"

#include <cmath>
#include <span>

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

std::optional<ConstTensor> IfLayerNorm(const Norm& op, const Tensor& tensor) {
  return op.layer_norm ? std::optional<ConstTensor>(tensor) : std::nullopt;
}
std::optional<Tensor> MadeIfLayerNorm(const Norm& op, const Tensor& tensor) {
  return op.layer_norm ? std::optional<Tensor>(tensor) : std::nullopt;
}

template <class Body>
void EachNorm(std::span<const RowsOf> matrices, Body body) {
  for (const bool layer_norm : {false, true}) {
    for (const RowsOf& m : matrices) {
      SCOPED_TRACE(std::to_string(m.rows) + " rows of " + std::to_string(m.width));
      EachDType([&](DType dtype) {
        body(Norm{.rows = m.rows, .width = m.width, .layer_norm = layer_norm, .eps = 0.01}, dtype);
      });
    }
  }
}

/// Rows that are kept in registers: by a warp, by several of which some have less to keep, the longest.
constexpr RowsOf kHeld[] = {{3, 8}, {2, 1096}, {2, 8192}};
/// The same that blocks share, and so many that their sums are shared as well.
constexpr RowsOf kHeldByShares[] = {{9, 8}, {8, 1096}, {8, 4104}, {1040, 8}};

/// 1 / sqrt(mean square + eps) <= 1 / sqrt(0.01).
constexpr double kMostRstd = 10;

void CheckForward(const Place& place) {
  const auto check = [&](const Norm& op, DType dtype) {
    const NormTypes types = NormOutputs(op, dtype);
    // With s a sum's roundings: the mean loses s + 1; the mean square, of terms up to 4, 4 (3 s + 5) at most; but what
    // it loses is at most that part of itself, so that rstd loses half of it relatively. y = (x - mean) rstd w + b adds
    // the mean's and four.
    const double s = SumLost(op.width), rstd_lost = (3 * s + 10) * 4 / 2 * kMostRstd;
    const std::vector<Operand> operands = {
        Read(Some(dtype, op.rows * op.width, 1)), Read(Some(dtype, op.width, 2)),
        Read(Some(dtype, op.width, 3)),           Written(types.output, 2 * rstd_lost + (s + 5) * kMostRstd),
        Written(types.rstd, rstd_lost),           Written({types.rstd.dtype, op.rows}, s + 1)};
    Compare(place, operands, &kernels::NormForward, &cuda::NormForward, [&](auto run, const Tensors& t) {
      run(op, t[0], t[1], IfLayerNorm(op, t[2]), t[3], t[4], MadeIfLayerNorm(op, t[5]));
    });
  };
  EachNorm(kMatrices, check);
  EachNorm(kHeld, check);
}

void CheckBackward(const Place& place) {
  const auto check = [&](const Norm& norm, DType dtype) {
    for (const bool accumulate : {false, true}) {
      Norm op = norm;
      op.accumulate = accumulate;
      const DType statistics = StatisticsOf(dtype);
      // Statistics are random as well: xhat = (x - mean) rstd <= 2, with three roundings; means of n of size 2, times
      // xhat and rstd: 4 in all. A column is a sum of `rows` of size 2, and what was there.
      const double s = SumLost(op.width), rows = static_cast<double>(op.rows);
      const std::vector<Operand> operands = {Read(Some(dtype, op.rows * op.width, 1)),
                                             Read(Some(dtype, op.rows * op.width, 2)),
                                             Read(Some(statistics, op.rows, 3)),
                                             Read(Some(statistics, op.rows, 4)),
                                             Read(Some(dtype, op.width, 5)),
                                             Written({dtype, op.rows * op.width}, (2 * s + 16) * 4),
                                             Updated(Some(dtype, op.width, 6), (rows + 5) * (2 * rows + 1)),
                                             Updated(Some(dtype, op.width, 7), (rows + 2) * (rows + 1))};
      Compare(place, operands, &kernels::NormBackward, &cuda::NormBackward, [&](auto run, const Tensors& t) {
        run(op, t[0], t[1], t[2], IfLayerNorm(op, t[3]), t[4], t[5], t[6], MadeIfLayerNorm(op, t[7]));
      });
    }
  };
  EachNorm(kMatrices, check);
  EachNorm(kHeldByShares, check);
  const RowsOf shared = {kSharedRows, 5};
  EachNorm({&shared, 1}, check);
}

}  // namespace

std::vector<Case> NormCases() { return {{"NormForward", CheckForward}, {"NormBackward", CheckBackward}}; }

}  // namespace tidemark::kernels::cuda
