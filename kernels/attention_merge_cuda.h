// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention_merge.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/attention_merge.h on a GPU.

void MergeAttention(const AttentionMerge& op, const ConstTensor& part, const ConstTensor& part_lse,
                    const Tensor& output, const Tensor& lse, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue MergeAttention{&kernels::MergeAttention, &cuda::MergeAttention};

}  // namespace tidemark::kernels::on
