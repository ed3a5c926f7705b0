// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

struct DTypes {
  DType a, b, c;
};

void CheckProduct(const Place& place, const Gemm& op, const DTypes& dtypes) {
  SCOPED_TRACE(std::to_string(op.m) + " x " + std::to_string(op.n) + " x " + std::to_string(op.k) + ", " +
               std::string(Name(dtypes.a)) + " " + std::string(Name(dtypes.b)) + " " + std::string(Name(dtypes.c)));
  const std::vector<Operand> operands = {
      Read(Some(dtypes.a, op.batch * op.m * op.k, 1)), Read(Some(dtypes.b, op.batch * op.k * op.n, 2)),
      Product(op.accumulate ? Some(dtypes.c, op.batch * op.m * op.n, 3) : Numbers(GemmOutput(op, dtypes.c)),
              ProductLost(op.k), op.accumulate)};
  Compare(place, operands, &kernels::Multiply, &cuda::Multiply,
          [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
}

/// Transposed and not, added and not.
template <class Body>
void EachWay(Gemm op, Body body) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool accumulate : {false, true}) {
        op.transpose_a = transpose_a;
        op.transpose_b = transpose_b;
        op.accumulate = accumulate;
        body(op);
      }
    }
  }
}

void CheckEverySize(const Place& place) {
  constexpr DTypes kDTypes[] = {{DType::fp64, DType::fp64, DType::fp64}, {DType::fp32, DType::fp32, DType::fp32},
                                {DType::bf16, DType::bf16, DType::bf16}, {DType::fp16, DType::fp16, DType::fp16},
                                {DType::bf16, DType::bf16, DType::fp32}, {DType::fp16, DType::fp16, DType::fp32},
                                {DType::bf16, DType::fp32, DType::bf16}, {DType::fp32, DType::fp32, DType::bf16}};
  for (const Gemm& shape :
       {Gemm{1, 1, 1}, Gemm{3, 5, 7, 2}, Gemm{1, 40, 9}, Gemm{31, 1, 8}, Gemm{16, 24, 32, 3}, Gemm{33, 17, 65}}) {
    for (const DTypes& dtypes : kDTypes) {
      EachWay(shape, [&](const Gemm& op) { CheckProduct(place, op, dtypes); });
    }
  }
}

void CheckEveryDType(const Place& place) {
  EachDType([&](DType a) {
    EachDType([&](DType b) {
      EachDType([&](DType c) {
        CheckProduct(place, {.m = 3, .n = 5, .k = 7, .batch = 2, .transpose_b = true}, {a, b, c});
        CheckProduct(place, {.m = 4, .n = 2, .k = 8, .transpose_a = true, .accumulate = true}, {a, b, c});
      });
    });
  });
}

void CheckLongSums(const Place& place) {  // which a library may share among blocks
  for (const DTypes& dtypes : {DTypes{DType::fp32, DType::fp32, DType::fp32},
                               {DType::bf16, DType::bf16, DType::bf16},
                               {DType::bf16, DType::bf16, DType::fp32}}) {
    CheckProduct(place, {.m = 8, .n = 8, .k = 20000, .transpose_b = true}, dtypes);
  }
}

}  // namespace

std::vector<Case> GemmCases() {
  return {{"Multiply", CheckEverySize}, {"MultiplyOfEveryDType", CheckEveryDType}, {"MultiplyLongSums", CheckLongSums}};
}

}  // namespace tidemark::kernels::cuda
