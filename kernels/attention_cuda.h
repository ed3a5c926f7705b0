// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/attention.h on a GPU, tiled as in FlashAttention-2 (Dao, 2023, https://arxiv.org/abs/2307.08691): a thread
// block per head and tile of 64 queries walks over the keys; backwards, one per tile of queries makes delta and dQ, and
// then one per kv head and tile of 64 keys makes dK and dV. Each makes its scores anew: seven products of tiles instead
// of five, but every sum has one owner, who adds in a fixed order.
//
// Where q, k and v (and the gradient) are all bf16 or all fp16, tensor cores multiply them, and the softmax and its
// gradient dS / scale are rounded to that dtype before they are multiplied in turn, as in every such implementation;
// else products are of the arithmetic's dtype. Heads of 48, 64 and 128 waste nothing; others are filled up with zeros
// to the next of these, and beyond 128 (fp64: 64) every 128 elements of a head are a block of their own, which makes
// all the scores again.

void AttentionForward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                      const Tensor& output, const Tensor& lse, const Queue& queue);
/// dq_accumulator is written once, with dQ before it is rounded.
void AttentionBackward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                       const ConstTensor& output, const ConstTensor& lse, const ConstTensor& output_gradient,
                       const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dq_accumulator,
                       const Tensor& delta, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue AttentionForward{&kernels::AttentionForward, &cuda::AttentionForward};
inline constexpr OnQueue AttentionBackward{&kernels::AttentionBackward, &cuda::AttentionBackward};

}  // namespace tidemark::kernels::on
