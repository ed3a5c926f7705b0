// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_weights_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// As in glu.cc, and the weight.
constexpr double kLost = 18;

/// Calls `body(op, dtype, dtype of weights)`, where there are rows.
template <class Body>
void EachRows(Body body) {
  for (const RowsOf& m : kMatrices) {
    if (m.rows == 0) {
      continue;
    }
    SCOPED_TRACE(std::to_string(m.rows) + " rows of " + std::to_string(m.width));
    EachDType([&](DType dtype) {
      const Glu op{.rows = m.rows, .width = m.width};
      body(op, dtype, dtype);
      if (StatisticsOf(dtype) != dtype) {
        body(op, dtype, StatisticsOf(dtype));
      }
    });
  }
}

void CheckGluForward(const Place& place) {
  EachRows([&](const Glu& op, DType dtype, DType of_weights) {
    const std::vector<Operand> operands = {Read(Some(dtype, 2 * op.rows * op.width, 1)),
                                           Read(Some(of_weights, op.rows, 2)), Written(GluOutput(op, dtype), kLost)};
    Compare(place, operands, &kernels::WeightedGluForward, &cuda::WeightedGluForward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckGluBackward(const Place& place) {
  EachRows([&](const Glu& op, DType dtype, DType of_weights) {
    const std::int64_t packed = 2 * op.rows * op.width;
    const std::vector<Operand> operands = {
        Read(Some(dtype, packed, 1)), Read(Some(of_weights, op.rows, 2)), Read(Some(dtype, op.rows * op.width, 3)),
        Written({dtype, packed}, kLost),
        Written({of_weights, op.rows}, (SumLost(op.width) + kLost) * static_cast<double>(op.width))};
    Compare(place, operands, &kernels::WeightedGluBackward, &cuda::WeightedGluBackward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3], t[4]); });
  });
}

void CheckWeighRows(const Place& place) {
  EachRows([&](const Glu& op, DType dtype, DType of_weights) {
    const std::vector<Operand> operands = {Read(Some(dtype, op.rows * op.width, 1)), Read(Some(of_weights, op.rows, 2)),
                                           Written(GluOutput(op, dtype), 1)};
    Compare(place, operands, &kernels::WeighRows, &cuda::WeighRows,
            [&](auto run, const Tensors& t) { run(t[0], t[1], t[2]); });
  });
}

void CheckRowWeightGradients(const Place& place) {
  EachRows([&](const Glu& op, DType dtype, DType of_weights) {
    const std::vector<Operand> operands = {
        Read(Some(dtype, op.rows * op.width, 1)), Read(Some(dtype, op.rows * op.width, 2)),
        Written({of_weights, op.rows * op.width}, 1),
        Written({of_weights, op.rows}, (SumLost(op.width) + StoredLost(of_weights)) * static_cast<double>(op.width))};
    Compare(place, operands, &kernels::RowWeightGradients, &cuda::RowWeightGradients,
            [&](auto run, const Tensors& t) { run(t[0], t[1], t[2], t[3]); });
  });
}

}  // namespace

std::vector<Case> RowWeightsCases() {
  return {{"WeightedGluForward", CheckGluForward},
          {"WeightedGluBackward", CheckGluBackward},
          {"WeighRows", CheckWeighRows},
          {"RowWeightGradients", CheckRowWeightGradients}};
}

}  // namespace tidemark::kernels::cuda
