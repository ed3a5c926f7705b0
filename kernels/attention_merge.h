// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// Attentions of the same queries to different keys become one to all of them, part by part:
///   lse' = log(e^lse + e^lse_p),  O' = e^(lse - lse') O + e^(lse_p - lse') O_p
/// for each row, a head of a token, of `head_size` elements. A part whose lse is -infinity adds nothing; O and lse must
/// be those of some key. Both are written in place, and the sum is rounded once (Milakov and Gimelshein, Online
/// normalizer calculation for softmax, 2018, algorithm 3, for whole rows).
struct AttentionMerge {
  std::int64_t rows = 0, head_size = 0;
};

void MergeAttention(const AttentionMerge& op, const ConstTensor& part, const ConstTensor& part_lse,
                    const Tensor& output, const Tensor& lse);

}  // namespace tidemark::kernels
