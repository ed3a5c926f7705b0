// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// Keys and values of multi-latent attention (DeepSeek-AI, DeepSeek-V2, 2024, section 2.1). One product makes, for each
/// head of a token, `own` elements of its key and the `values` of its value, one behind the other; `shared` elements
/// more are the same in the keys of all heads:
///   projected [tokens, heads, own + values] and common [tokens, shared] to
///   keys      [tokens, heads, own + shared] and values [tokens, heads, values].
struct LatentHeads {
  std::int64_t tokens = 0, heads = 0, own = 0, shared = 0, values = 0;

  std::int64_t projected_elements() const { return tokens * heads * (own + values); }
  std::int64_t common_elements() const { return tokens * shared; }
  std::int64_t key_elements() const { return tokens * heads * (own + shared); }
  std::int64_t value_elements() const { return tokens * heads * values; }
};

void JoinKeys(const LatentHeads& op, const ConstTensor& projected, const ConstTensor& common, const Tensor& keys);
void CopyValues(const LatentHeads& op, const ConstTensor& projected, const Tensor& values);
/// Gradients of `projected` and, summed over the heads, of `common`.
void SplitKeyGradients(const LatentHeads& op, const ConstTensor& key_gradient, const ConstTensor& value_gradient,
                       const Tensor& projected_gradient, const Tensor& common_gradient);

}  // namespace tidemark::kernels
