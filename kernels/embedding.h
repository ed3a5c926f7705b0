// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"
#include "kernels/token_places.h"

namespace tidemark::kernels {

/// Rows of a table [vocabulary, width] by ids (int64). A rank that holds a part of the vocabulary has the rows from
/// `first_row` on; ids of other ranks give rows of zeros, so that the sum over ranks is right (Megatron-LM's
/// VocabParallelEmbedding). Backward adds, for each row of the table, all gradients of its tokens in the order of
/// tokens, in the arithmetic's dtype, and rounds once; rows without a token are 0, or with `accumulate` as they were.
struct Embedding {
  std::int64_t tokens = 0, width = 0, vocabulary = 0, first_row = 0;
  bool accumulate = false;
};

TensorType EmbeddingOutput(const Embedding& op, DType weight);
TensorType EmbeddingGradientOutput(const Embedding& op, DType gradients);

void EmbeddingForward(const Embedding& op, const ConstTensor& ids, const ConstTensor& weight, const Tensor& output);
void EmbeddingBackward(const Embedding& op, const ConstTensor& ids, const ConstTensor& output_gradient,
                       const Tensor& weight_gradient);

/// A learned row for each place in the sequence, added: y[r] = x[r] + table[(first_row + r) mod sequence]. `table` is
/// [positions, width], at least a sequence long. Backward sums over sequences; as above for rows without a token.
struct Positions {
  std::int64_t rows = 0, width = 0, sequence = 0, positions = 0;
  std::int64_t first_row = 0;  ///< of these rows, among all tokens of the microbatch
  TokenPlaces places{};        ///< of the `sequence` tokens of each of its sequences
  bool accumulate = false;

  constexpr std::int64_t PlaceOf(std::int64_t row) const { return places.Of((first_row + row) % sequence, sequence); }
};

TensorType PositionsOutput(const Positions& op, DType input);
TensorType PositionsGradientOutput(const Positions& op, DType gradients);

void PositionsForward(const Positions& op, const ConstTensor& input, const ConstTensor& table, const Tensor& output);
void PositionsBackward(const Positions& op, const ConstTensor& output_gradient, const Tensor& table_gradient);

}  // namespace tidemark::kernels
