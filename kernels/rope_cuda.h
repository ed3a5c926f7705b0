// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/queue.h"
#include "kernels/rope.h"

namespace tidemark::kernels::cuda {

// kernels/rope.h on a GPU.

void RopeForward(const Rope& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& angles,
                 const Tensor& q_out, const Tensor& k_out, const Queue& queue);
void RopeBackward(const Rope& op, const ConstTensor& dq, const ConstTensor& dk, const ConstTensor& angles,
                  const Tensor& dq_out, const Tensor& dk_out, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue RopeForward{&kernels::RopeForward, &cuda::RopeForward};
inline constexpr OnQueue RopeBackward{&kernels::RopeBackward, &cuda::RopeBackward};

}  // namespace tidemark::kernels::on
