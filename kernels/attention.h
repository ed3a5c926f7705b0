// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/heads.h"

namespace tidemark::kernels {

/// Which keys of its sequence a query sees. The last two are what is left of a causal mask between tokens of different
/// stretches of one long sequence, where each rank of a ring has one stretch from its front and the one as far from its
/// end (context parallelism): a key of another rank is in front of a query, or behind it, by its half alone.
enum class Sight : std::uint8_t {
  all,
  causal,                  ///< that of its own token and those before it
  first_half_of_keys,      ///< whichever query it is
  second_half_of_queries,  ///< all, where it is one of these; else none
};

/// O = softmax(scale Q K^T) V for each head, where V and O may be of another size than Q and K, in tiles of the scores:
/// memory grows with the sequence, not its square (Dao et al., FlashAttention, 2022, algorithms 1, 2 and 4). A query
/// that sees nothing has an O of 0 and an lse of -infinity.
///
/// Saved for the backward pass: lse[token, head] = log sum exp of the row's scaled scores. With P = exp(S - lse) and
/// delta[token, head] = sum of dO O over the head:
///   dV = P^T dO,  dS = P (dO V^T - delta),  dQ = scale dS K,  dK = scale dS^T Q;
/// dK and dV are sums over the query heads that share them. dQ is summed over tiles in `dq_accumulator`, in the
/// arithmetic's dtype, and rounded once.
struct Attention {
  HeadShape shape;
  Sight sight = Sight::causal;
  double scale = 0;  ///< of scores; 0: 1 / sqrt(head_size)
  /// Under a causal mask, how many keys a query sees at most, its own and those right before it; 0: no limit.
  std::int64_t window = 0;

  /// The end of the keys of its sequence that a query at this place sees. No query sees less far than one before.
  constexpr std::int64_t SeenBy(std::int64_t query) const {
    const std::int64_t half = shape.sequence / 2;
    if (sight == Sight::causal) {
      return query + 1;
    }
    if (sight == Sight::first_half_of_keys) {
      return half;
    }
    return sight == Sight::second_half_of_queries && query < half ? 0 : shape.sequence;
  }
  /// The first key that it sees, if it sees any.
  constexpr std::int64_t FirstSeenBy(std::int64_t query) const {
    return window > 0 && query >= window ? query + 1 - window : 0;
  }
  /// The first query that sees the key at this place, and so do all behind it up to EndOfSight; as many as there are
  /// queries: none.
  constexpr std::int64_t FirstToSee(std::int64_t key) const {
    const std::int64_t half = shape.sequence / 2;
    if (sight == Sight::causal) {
      return key;
    }
    if (sight == Sight::second_half_of_queries) {
      return half;
    }
    return sight == Sight::first_half_of_keys && key >= half ? shape.sequence : 0;
  }
  /// The end of the queries that see it. No key is seen by less late ones than one before.
  constexpr std::int64_t EndOfSight(std::int64_t key) const {
    return window > 0 && key < shape.sequence - window ? key + window : shape.sequence;
  }
};

struct AttentionTypes {
  TensorType output, lse;
};
AttentionTypes AttentionOutputs(const Attention& op, DType dtype);

struct AttentionGradientTypes {
  TensorType dq, dk, dv, dq_accumulator, delta;
};
AttentionGradientTypes AttentionGradients(const Attention& op, DType dtype);

/// output is [batch, sequence, heads, value_size()].
void AttentionForward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                      const Tensor& output, const Tensor& lse);
void AttentionBackward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                       const ConstTensor& output, const ConstTensor& lse, const ConstTensor& output_gradient,
                       const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dq_accumulator,
                       const Tensor& delta);

}  // namespace tidemark::kernels
