// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_gate_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// Rows as wide as those that the gate is made of, and not; so many that their sums are shared.
template <class Body>
void EachGate(Body body) {
  for (const RowGate& op : {RowGate{1, 1, 1}, RowGate{3, 33, 20}, RowGate{5, 256, 256}, RowGate{2, 300, 2077},
                            RowGate{kSharedRows, 20, 9}}) {
    SCOPED_TRACE(std::to_string(op.rows) + " rows of " + std::to_string(op.in) + " and " + std::to_string(op.width));
    EachDType([&](DType dtype) { body(op, dtype); });
  }
}

/// A score's n products, up to n, and what the sigmoid makes of it, whose slope is 1/4 at most.
double GateLost(std::int64_t n) { return (SumLost(n) + 1) * static_cast<double>(n) / 4 + 8; }

void CheckForward(const Place& place) {
  EachGate([&](const RowGate& op, DType dtype) {
    const RowGateTypes types = RowGateOutputs(op, dtype);
    const std::vector<Operand> operands = {
        Read(Some(dtype, op.rows * op.in, 1)), Read(Some(dtype, op.in, 2)), Read(Some(dtype, op.rows * op.width, 3)),
        Written(types.output, GateLost(op.in) + StoredLost(dtype)), Written(types.gate, GateLost(op.in))};
    Compare(place, operands, &kernels::RowGateForward, &cuda::RowGateForward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3], t[4]); });
  });
}

void CheckBackward(const Place& place) {
  EachGate([&](RowGate op, DType dtype) {
    for (const bool accumulate : {false, true}) {
      op.accumulate = accumulate;
      const RowGateGradientTypes types = RowGateGradients(op, dtype);
      // A gate of size 1 here: g (1 - g) is 2 at most, and the sum of products, each of them stored, `width`.
      const double width = static_cast<double>(op.width), rows = static_cast<double>(op.rows);
      const double score = 2 * width * (SumLost(op.width) + StoredLost(dtype) + 3),
                   read = score + 2 * width * StoredLost(dtype);
      const std::vector<Operand> operands = {
          Read(Some(dtype, op.rows * op.width, 1)),
          Read(Some(dtype, op.rows * op.in, 2)),
          Read(Some(dtype, op.in, 3)),
          Read(Some(dtype, op.rows * op.width, 4)),
          Read(Some(dtype, op.rows, 5)),
          Written(types.input, 1),
          Written(types.gate_input, read + 2 * width),
          Written(types.products, 1),
          Written(types.scores, score),
          Updated(Some(StatisticsOf(dtype), op.in, 6), rows * (read + 2 * width * (rows + 4)))};
      Compare(place, operands, &kernels::RowGateBackward, &cuda::RowGateBackward, [&](auto run, const Tensors& t) {
        run(op, t[0], RowGateSaved{t[1], t[2], t[3], t[4]},
            RowGateGradientTensors{t[5], t[6], t[7], t[8], std::optional(t[9])});
      });
    }
  });
}

}  // namespace

std::vector<Case> RowGateCases() { return {{"RowGateForward", CheckForward}, {"RowGateBackward", CheckBackward}}; }

}  // namespace tidemark::kernels::cuda
