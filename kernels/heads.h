// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// Queries, keys and values of `batch` sequences. Dense, q is [batch, sequence, heads, head_size], k is
/// [batch, sequence, kv_heads, head_size] and v [batch, sequence, kv_heads, value_size()]. Wherever an operator reads
/// one of them it may be given the whole output of a packed projection instead,
/// [batch, sequence, heads head_size + kv_heads (head_size + value_size())] with q, k, v side by side in each row; for
/// v also that of a product that makes something else in front of each head of v (kernels/latent_heads.h), [batch,
/// sequence, kv_heads, before_value + value_size()]. It knows by the number of elements. Query head h reads key and
/// value head h / (heads / kv_heads).
struct HeadShape {
  std::int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t value_head_size = 0;  ///< of v and of attention's output; 0: as of q and k
  std::int64_t before_value = 0;     ///< elements in front of each head of v, where v is not dense

  constexpr std::int64_t value_size() const { return value_head_size == 0 ? head_size : value_head_size; }
  std::int64_t tokens() const { return batch * sequence; }
  std::int64_t query_elements() const { return tokens() * heads * head_size; }
  std::int64_t key_elements() const { return tokens() * kv_heads * head_size; }
  std::int64_t value_elements() const { return tokens() * kv_heads * value_size(); }
  std::int64_t output_elements() const { return tokens() * heads * value_size(); }
  std::int64_t packed_elements() const { return query_elements() + key_elements() + value_elements(); }
  friend bool operator==(const HeadShape&, const HeadShape&) = default;
};

/// Where heads lie in a tensor: element d of head h of token t at t stride + first + h apart + d.
struct HeadRows {
  std::int64_t stride = 0, first = 0, apart = 0;
};
HeadRows QueryRows(const HeadShape& shape, const TensorType& type);
HeadRows KeyRows(const HeadShape& shape, const TensorType& type);
HeadRows ValueRows(const HeadShape& shape, const TensorType& type);

}  // namespace tidemark::kernels
