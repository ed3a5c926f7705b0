// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/latent_heads.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/latent_heads.h on a GPU.

void JoinKeys(const LatentHeads& op, const ConstTensor& projected, const ConstTensor& common, const Tensor& keys,
              const Queue& queue);
void CopyValues(const LatentHeads& op, const ConstTensor& projected, const Tensor& values, const Queue& queue);
void SplitKeyGradients(const LatentHeads& op, const ConstTensor& key_gradient, const ConstTensor& value_gradient,
                       const Tensor& projected_gradient, const Tensor& common_gradient, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue JoinKeys{&kernels::JoinKeys, &cuda::JoinKeys};
inline constexpr OnQueue CopyValues{&kernels::CopyValues, &cuda::CopyValues};
inline constexpr OnQueue SplitKeyGradients{&kernels::SplitKeyGradients, &cuda::SplitKeyGradients};

}  // namespace tidemark::kernels::on
