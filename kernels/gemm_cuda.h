// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/gemm.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/gemm.h on a GPU: cuBLASLt where the queue has it and it has the operands' dtypes (product_cuda.h).

void Multiply(const Gemm& op, const ConstTensor& a, const ConstTensor& b, const Tensor& c, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue Multiply{&kernels::Multiply, &cuda::Multiply};

}  // namespace tidemark::kernels::on
