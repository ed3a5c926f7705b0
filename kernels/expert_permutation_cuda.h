// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/expert_permutation.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/expert_permutation.h on a GPU. Whoever adds up a token's rows looks for them among all: tokens times rows
// comparisons, and no memory to sort in.

void Permute(const Permutation& op, const ConstTensor& tokens, const ConstTensor& weights, const ConstTensor& mask,
             const Permuted& to, const Queue& queue);
void PermuteBackward(const Permutation& op, const ConstTensor& row_gradients, const ConstTensor& row_weight_gradients,
                     const ConstTensor& token_order, const ConstTensor& places, const Tensor& token_gradients,
                     const Tensor& weight_gradients, const Queue& queue);
void Unpermute(const Permutation& op, const ConstTensor& rows, const ConstTensor& token_order, const Tensor& tokens,
               const Queue& queue);
void UnpermuteBackward(const Permutation& op, const ConstTensor& token_gradients, const ConstTensor& token_order,
                       const Tensor& row_gradients, const Queue& queue);
void CountEvenly(std::int64_t rows, const Tensor& counts, const Queue& queue);
void SortRows(const RowSort& op, const ConstTensor& from, const Tensor& to, const Queue& queue);
void SortOrder(const RowSort& op, const Tensor& order, const Queue& queue);
void GatherRows(const ConstTensor& from, const ConstTensor& order, const Tensor& to, const Queue& queue);
void ScatterRows(const ConstTensor& from, const ConstTensor& order, const Tensor& to, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue Permute{&kernels::Permute, &cuda::Permute};
inline constexpr OnQueue PermuteBackward{&kernels::PermuteBackward, &cuda::PermuteBackward};
inline constexpr OnQueue Unpermute{&kernels::Unpermute, &cuda::Unpermute};
inline constexpr OnQueue UnpermuteBackward{&kernels::UnpermuteBackward, &cuda::UnpermuteBackward};
inline constexpr OnQueue CountEvenly{&kernels::CountEvenly, &cuda::CountEvenly};
inline constexpr OnQueue SortRows{&kernels::SortRows, &cuda::SortRows};
inline constexpr OnQueue SortOrder{&kernels::SortOrder, &cuda::SortOrder};
inline constexpr OnQueue GatherRows{&kernels::GatherRows, &cuda::GatherRows};
inline constexpr OnQueue ScatterRows{&kernels::ScatterRows, &cuda::ScatterRows};

}  // namespace tidemark::kernels::on
