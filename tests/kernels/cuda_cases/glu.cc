// SPDX-License-Identifier: Apache-2.0
#include "kernels/glu_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// A sigmoid loses 6 roundings, the products around it, all of size 1 or less, under 10 more.
constexpr double kLost = 16;

/// Calls `body(op, dtype, packed)`: gate and up as tensors of their own, and as one of both.
template <class Body>
void EachGlu(Body body) {
  for (const RowsOf& m : kMatrices) {
    SCOPED_TRACE(std::to_string(m.rows) + " rows of " + std::to_string(m.width));
    EachDType([&](DType dtype) {
      for (const bool packed : {false, true}) {
        body(Glu{.rows = m.rows, .width = m.width}, dtype, packed);
      }
    });
  }
}

Operand ReadHalf(const Glu& op, DType dtype, bool packed, unsigned seed) {
  return Read(Some(dtype, op.rows * op.width * (packed ? 2 : 1), seed));
}
/// Of a packed tensor the other half stays as it was.
Operand UpdatedHalf(const Glu& op, DType dtype, bool packed, unsigned seed) {
  return Updated(Some(dtype, op.rows * op.width * (packed ? 2 : 1), seed), kLost);
}

void CheckForward(const Place& place) {
  EachGlu([&](const Glu& op, DType dtype, bool packed) {
    const std::vector<Operand> operands = {ReadHalf(op, dtype, packed, 1), ReadHalf(op, dtype, packed, 2),
                                           Written(GluOutput(op, dtype), kLost)};
    Compare(place, operands, &kernels::GluForward, &cuda::GluForward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckBackward(const Place& place) {
  EachGlu([&](const Glu& op, DType dtype, bool packed) {
    const std::vector<Operand> operands = {ReadHalf(op, dtype, packed, 1), ReadHalf(op, dtype, packed, 2),
                                           ReadHalf(op, dtype, false, 3), UpdatedHalf(op, dtype, packed, 4),
                                           UpdatedHalf(op, dtype, packed, 5)};
    Compare(place, operands, &kernels::GluBackward, &cuda::GluBackward, [&](auto run, const Tensors& t) {
      run(op, t[0], t[1], t[2], t[3], t[packed ? 3 : 4]);  // packed: one tensor for both
    });
  });
}

void CheckSiluForward(const Place& place) {
  EachGlu([&](const Glu& op, DType dtype, bool packed) {
    Compare(place, {ReadHalf(op, dtype, packed, 1), Written(GluOutput(op, dtype), kLost)}, &kernels::SiluForward,
            &cuda::SiluForward, [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
  });
}

void CheckSiluBackward(const Place& place) {
  EachGlu([&](const Glu& op, DType dtype, bool packed) {
    const std::vector<Operand> operands = {ReadHalf(op, dtype, false, 1), ReadHalf(op, dtype, packed, 2),
                                           UpdatedHalf(op, dtype, packed, 3)};
    Compare(place, operands, &kernels::SiluBackward, &cuda::SiluBackward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckProductForward(const Place& place) {
  EachGlu([&](const Glu& op, DType dtype, bool packed) {
    const std::vector<Operand> operands = {ReadHalf(op, dtype, false, 1), ReadHalf(op, dtype, packed, 2),
                                           Written(GluOutput(op, dtype), 1)};
    Compare(place, operands, &kernels::ProductForward, &cuda::ProductForward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckProductBackward(const Place& place) {
  EachGlu([&](const Glu& op, DType dtype, bool packed) {
    const std::vector<Operand> operands = {ReadHalf(op, dtype, false, 1), ReadHalf(op, dtype, false, 2),
                                           ReadHalf(op, dtype, packed, 3), Written(GluOutput(op, dtype), 1),
                                           UpdatedHalf(op, dtype, packed, 4)};
    Compare(place, operands, &kernels::ProductBackward, &cuda::ProductBackward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3], t[4]); });
  });
}

void CheckJoinHalves(const Place& place) {
  EachGlu([&](const Glu& op, DType dtype, bool packed) {
    if (packed) {
      const std::vector<Operand> operands = {ReadHalf(op, dtype, false, 1), ReadHalf(op, dtype, false, 2),
                                             Written({dtype, 2 * GluOutput(op, dtype).elements}, 0)};
      Compare(place, operands, &kernels::JoinHalves, &cuda::JoinHalves,
              [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
    }
  });
}

}  // namespace

std::vector<Case> GluCases() {
  return {{"GluForward", CheckForward},
          {"GluBackward", CheckBackward},
          {"SiluForward", CheckSiluForward},
          {"SiluBackward", CheckSiluBackward},
          {"ProductForward", CheckProductForward},
          {"ProductBackward", CheckProductBackward},
          {"JoinHalves", CheckJoinHalves}};
}

}  // namespace tidemark::kernels::cuda
