// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_linear_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// Experts of which one has no rows, one a single one, and all.
const std::vector<std::vector<std::int64_t>> kCounts = {{5}, {2, 0, 3}, {1, 33, 33}, {0, 0, 4}};

/// Calls `body(op, counts, dtype, dtype of a main gradient)`.
template <class Body>
void EachExperts(Body body) {
  for (const std::vector<std::int64_t>& counts : kCounts) {
    std::int64_t rows = 0;
    for (const std::int64_t count : counts) {
      rows += count;
    }
    for (const RowsOf& sizes : {RowsOf{9, 5}, RowsOf{32, 16}}) {
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(counts.size()) + " experts");
      EachDType([&](DType dtype) {
        const ExpertLinear op{.experts = std::ssize(counts), .rows = rows, .in = sizes.rows, .out = sizes.width};
        body(op, std::span<const std::int64_t>(counts), dtype, StatisticsOf(dtype));
      });
    }
  }
}

void CheckForward(const Place& place) {
  EachExperts([&](const ExpertLinear& op, std::span<const std::int64_t> counts, DType dtype, DType) {
    const std::vector<Operand> operands = {Read(Some(dtype, op.rows * op.in, 1)),
                                           Read(Some(dtype, op.experts * op.out * op.in, 2)),
                                           Product(Numbers(ExpertLinearOutput(op, dtype)), ProductLost(op.in), false)};
    Compare(place, operands, &kernels::ExpertLinearForward, &cuda::ExpertLinearForward,
            [&](auto run, const Tensors& t) { run(op, t[0], counts, t[1], t[2]); });
  });
}

void CheckInputGradient(const Place& place) {
  EachExperts([&](const ExpertLinear& op, std::span<const std::int64_t> counts, DType dtype, DType) {
    const std::vector<Operand> operands = {Read(Some(dtype, op.rows * op.out, 1)),
                                           Read(Some(dtype, op.experts * op.out * op.in, 2)),
                                           Written(ExpertLinearInputGradientOutput(op, dtype), ProductLost(op.out))};
    Compare(place, operands, &kernels::ExpertLinearInputGradient, &cuda::ExpertLinearInputGradient,
            [&](auto run, const Tensors& t) { run(op, t[0], counts, t[1], t[2]); });
  });
}

void CheckWeightGradient(const Place& place) {
  EachExperts([&](ExpertLinear op, std::span<const std::int64_t> counts, DType dtype, DType wide) {
    for (const bool accumulate : {false, true}) {
      op.accumulate = accumulate;
      const std::vector<Operand> operands = {
          Read(Some(dtype, op.rows * op.in, 1)), Read(Some(dtype, op.rows * op.out, 2)),
          Product(Some(wide, op.experts * op.out * op.in, 3), ProductLost(op.rows), accumulate)};
      Compare(place, operands, &kernels::ExpertLinearWeightGradient, &cuda::ExpertLinearWeightGradient,
              [&](auto run, const Tensors& t) { run(op, t[0], t[1], counts, t[2]); });
    }
  });
}

}  // namespace

std::vector<Case> ExpertLinearCases() {
  return {{"ExpertLinearForward", CheckForward},
          {"ExpertLinearInputGradient", CheckInputGradient},
          {"ExpertLinearWeightGradient", CheckWeightGradient}};
}

}  // namespace tidemark::kernels::cuda
