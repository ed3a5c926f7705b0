// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/normal.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/normal.h on a GPU, with the same numbers but for the last bits of its logarithms and cosines.

void DrawNormal(const Normal& op, const Tensor& to, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue DrawNormal{&kernels::DrawNormal, &cuda::DrawNormal};

}  // namespace tidemark::kernels::on
