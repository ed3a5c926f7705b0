// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "kernels/tensor.h"

namespace tidemark::kernels {

/// Rows of `width` in the order of experts, one for each expert that a token is sent to: sorted by expert, and of one
/// expert by token. `mask` [tokens, experts] (u8) says which those are, and each token has `per_token`. Of experts in
/// `groups` of as many each, rows are those of one, `group`, which must have its share of all: a token may have none.
///
///   rows         [tokens per_token / groups, width] copies of the tokens' rows
///   row_weights  one each, of `weights` [tokens, experts]
///   token_order  which token each row is of, int64
///   places       which element of the group's mask, transposed [own experts, tokens], each row is of: that itself
///   (u8),
///                or the places of its ones and then of its zeros (int64; torch.argsort's result, stable and
///                descending), of which nothing but the ones is read; of ones alone with `ones_only`
///   counts       rows of each of the group's experts, int64
///
/// Backward: a token's gradient is the sum of its rows' gradients, in the order of rows, rounded once. Weights of other
/// groups' experts have a gradient of 0.
struct Permutation {
  std::int64_t tokens = 0, experts = 0, per_token = 0, width = 0;
  std::int64_t groups = 1, group = 0;
  bool ones_only = false;

  constexpr std::int64_t rows() const { return tokens * per_token / groups; }
  constexpr std::int64_t own_experts() const { return experts / groups; }
  constexpr std::int64_t first_expert() const { return group * own_experts(); }
  constexpr std::int64_t places() const { return ones_only ? rows() : tokens * own_experts(); }
  /// Where a place of the group's transposed mask is in the mask of all experts.
  constexpr std::int64_t InMask(std::int64_t place) const {
    return place % tokens * experts + first_expert() + place / tokens;
  }
};

struct PermutationTypes {
  TensorType rows, row_weights, token_order, places, counts;
};
/// `places`: u8, or int64 as `ones_only` wants.
PermutationTypes PermutationOutputs(const Permutation& op, DType rows, DType weights, DType places);

/// What a permutation makes.
struct Permuted {
  Tensor rows, row_weights, token_order, places, counts;
};
void Permute(const Permutation& op, const ConstTensor& tokens, const ConstTensor& weights, const ConstTensor& mask,
             const Permuted& to);
void PermuteBackward(const Permutation& op, const ConstTensor& row_gradients, const ConstTensor& row_weight_gradients,
                     const ConstTensor& token_order, const ConstTensor& places, const Tensor& token_gradients,
                     const Tensor& weight_gradients);

/// The sum of each token's rows [tokens, width], in the order of rows, rounded once, 0 of none; backward hands each row
/// the gradient of its token. `experts` is nothing to either.
void Unpermute(const Permutation& op, const ConstTensor& rows, const ConstTensor& token_order, const Tensor& tokens);
void UnpermuteBackward(const Permutation& op, const ConstTensor& token_gradients, const ConstTensor& token_order,
                       const Tensor& row_gradients);

/// As many rows of each expert, `rows` in all.
void CountEvenly(std::int64_t rows, const Tensor& counts);

/// Rows of `width` in another order: from [outer, inner, rows] to [inner, outer, rows].
struct RowSort {
  std::int64_t outer = 0, inner = 0, rows = 0, width = 0;

  constexpr std::int64_t all_rows() const { return outer * inner * rows; }
  constexpr std::int64_t To(std::int64_t row) const {
    const std::int64_t group = row / rows;
    return (group % inner * outer + group / inner) * rows + row % rows;
  }
};
void SortRows(const RowSort& op, const ConstTensor& from, const Tensor& to);
/// Which row comes to each place.
void SortOrder(const RowSort& op, const Tensor& order);
/// Rows of [rows, width] in the order of an int64 [rows] that has each number once, and back.
void GatherRows(const ConstTensor& from, const ConstTensor& order, const Tensor& to);
void ScatterRows(const ConstTensor& from, const ConstTensor& order, const Tensor& to);
/// Their width.
inline std::int64_t WidthOf(const ConstTensor& from, const ConstTensor& order, const Tensor& to) {
  TIDEMARK_CHECK(order.type.dtype == DType::int64 && from.type == to.type);
  TIDEMARK_CHECK(order.type.elements > 0 && from.type.elements % order.type.elements == 0);
  return from.type.elements / order.type.elements;
}

}  // namespace tidemark::kernels
