// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "base/dtype.h"
#include "base/quantity.h"

namespace tidemark {

// The closed set of operators. Each has its own attributes (local shapes of one rank), from which floating-point
// operations and the bytes it must move at least are derived, here and nowhere else. `ForEachField` visits the
// attributes by name, so that the text form of a program prints and parses every operator alike.

/// C[m,n] (+)= A[m,k] B[k,n], `batch` times.
struct Gemm {
  static constexpr std::string_view kName = "gemm";
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool accumulate = false;  ///< adds into C in `output`'s dtype instead of overwriting it
  DType dtype = DType::bf16;
  DType output = DType::bf16;
  friend bool operator==(const Gemm&, const Gemm&) = default;
};

/// Attention with online softmax (memory-linear). Shapes per rank; q has `heads`, k and v have `kv_heads`. Where ranks
/// have a part of each sequence each, `sequence` counts the tokens of one, and the keys are those of the rank
/// `ring_step` behind in the ring: under a causal mask every pair of ranks sees half of its pairs of tokens, as one
/// rank's own (models/network/ring_attention.h).
///
/// Under a causal mask a query may see the last `window` keys alone, in some layers of a network and not in others. All
/// its layers have one operator, the mean of theirs: so many with the window and so many without. What all layers add
/// up to is theirs; what one of them takes is not, nor what some of them do (a stage of a pipeline, recomputation of
/// each so many-th).
struct Attention {
  static constexpr std::string_view kName = "attention";
  std::int64_t batch = 0, heads = 0, kv_heads = 0, sequence = 0, head_size = 0;
  std::int64_t value_head_size = 0;  ///< of v and of the output; 0: as of q and k
  std::int64_t ring_step = 0;
  std::int64_t window = 0;  ///< 0: none
  std::int64_t windowed_layers = 1, full_layers = 0;
  bool causal = true, backward = false;
  DType dtype = DType::bf16;
  std::int64_t value_size() const { return value_head_size == 0 ? head_size : value_head_size; }
  /// Of one layer with the window, and of one without.
  Attention Windowed() const;
  Attention Full() const;
  friend bool operator==(const Attention&, const Attention&) = default;
};

/// RMSNorm (one statistic a row) or LayerNorm (two).
struct Norm {
  static constexpr std::string_view kName = "norm";
  std::int64_t rows = 0, width = 0;
  bool layer_norm = false, backward = false;
  DType dtype = DType::bf16;
  friend bool operator==(const Norm&, const Norm&) = default;
};

/// Rotary embedding in place on `elements` of q and k.
struct Rope {
  static constexpr std::string_view kName = "rope";
  std::int64_t elements = 0;
  bool backward = false;
  DType dtype = DType::bf16;
  friend bool operator==(const Rope&, const Rope&) = default;
};

/// Anything that streams through memory once: residual adds, activations, dropout, casts, GLU, accumulation.
struct Pointwise {
  static constexpr std::string_view kName = "pointwise";
  std::int64_t elements = 0;     ///< of the output
  std::int64_t bytes_moved = 0;  ///< read and written, in total
  std::int64_t flops_per_element = 1;
  bool draws = false;        ///< a random number for each element, as dropout does
  bool column_sums = false;  ///< what is written are sums over the rows of what is read, as a bias's gradient is
  friend bool operator==(const Pointwise&, const Pointwise&) = default;
};

/// Row lookup, and in the backward pass scatter-add into the table's gradient.
struct Embedding {
  static constexpr std::string_view kName = "embedding";
  std::int64_t tokens = 0, width = 0, vocabulary = 0;
  bool backward = false;
  DType dtype = DType::bf16;
  friend bool operator==(const Embedding&, const Embedding&) = default;
};

/// Softmax cross-entropy over `vocabulary` local columns; fp32 inside. One of its memory passes.
struct CrossEntropy {
  static constexpr std::string_view kName = "cross_entropy";
  std::int64_t rows = 0, vocabulary = 0;
  std::int64_t bytes_moved = 0;
  bool backward = false;
  friend bool operator==(const CrossEntropy&, const CrossEntropy&) = default;
};

/// Every one of `rows` representations of `width` compared with every one of `columns`, as InfoNCE does before its
/// softmax: logits = X Y^T in the forward pass; in the backward pass both products with the gradient of the logits, dX
/// and dY.
struct InfoNce {
  static constexpr std::string_view kName = "info_nce";
  std::int64_t rows = 0, columns = 0, width = 0;
  bool backward = false;
  DType dtype = DType::fp32;
  friend bool operator==(const InfoNce&, const InfoNce&) = default;
};

/// The optimizer's update of `elements` parameters, reading and writing `bytes_moved` in total.
struct OptimizerUpdate {
  static constexpr std::string_view kName = "optimizer_update";
  std::int64_t elements = 0;
  std::int64_t bytes_moved = 0;
  std::int64_t flops_per_element = 12;
  friend bool operator==(const OptimizerUpdate&, const OptimizerUpdate&) = default;
};

/// A row of a table network: a duration somebody measured, or counted flops.
struct Tabulated {
  static constexpr std::string_view kName = "tabulated";
  std::int64_t nanoseconds = 0;  ///< 0: not measured, use flops and bytes
  std::int64_t flops = 0;
  std::int64_t bytes_moved = 0;
  DType dtype = DType::bf16;
  friend bool operator==(const Tabulated&, const Tabulated&) = default;
};

using Operator =
    std::variant<Gemm, Attention, Norm, Rope, Pointwise, Embedding, CrossEntropy, InfoNce, OptimizerUpdate, Tabulated>;

/// Calls `visit(name, field)` for each attribute, in a fixed order.
template <class Visitor>
void ForEachField(Gemm& op, Visitor visit) {
  visit("m", op.m), visit("n", op.n), visit("k", op.k), visit("batch", op.batch);
  visit("accumulate", op.accumulate), visit("dtype", op.dtype), visit("output", op.output);
}
template <class Visitor>
void ForEachField(Attention& op, Visitor visit) {
  visit("batch", op.batch), visit("heads", op.heads), visit("kv_heads", op.kv_heads);
  visit("sequence", op.sequence), visit("head_size", op.head_size), visit("ring_step", op.ring_step);
  visit("causal", op.causal), visit("value_head_size", op.value_head_size);
  visit("window", op.window), visit("windowed_layers", op.windowed_layers), visit("full_layers", op.full_layers);
  visit("backward", op.backward), visit("dtype", op.dtype);
}
template <class Visitor>
void ForEachField(Norm& op, Visitor visit) {
  visit("rows", op.rows), visit("width", op.width), visit("layer_norm", op.layer_norm);
  visit("backward", op.backward), visit("dtype", op.dtype);
}
template <class Visitor>
void ForEachField(Rope& op, Visitor visit) {
  visit("elements", op.elements), visit("backward", op.backward), visit("dtype", op.dtype);
}
template <class Visitor>
void ForEachField(Pointwise& op, Visitor visit) {
  visit("elements", op.elements), visit("bytes_moved", op.bytes_moved);
  visit("flops_per_element", op.flops_per_element), visit("draws", op.draws), visit("column_sums", op.column_sums);
}
template <class Visitor>
void ForEachField(Embedding& op, Visitor visit) {
  visit("tokens", op.tokens), visit("width", op.width), visit("vocabulary", op.vocabulary);
  visit("backward", op.backward), visit("dtype", op.dtype);
}
template <class Visitor>
void ForEachField(CrossEntropy& op, Visitor visit) {
  visit("rows", op.rows), visit("vocabulary", op.vocabulary), visit("bytes_moved", op.bytes_moved);
  visit("backward", op.backward);
}
template <class Visitor>
void ForEachField(InfoNce& op, Visitor visit) {
  visit("rows", op.rows), visit("columns", op.columns), visit("width", op.width);
  visit("backward", op.backward), visit("dtype", op.dtype);
}
template <class Visitor>
void ForEachField(OptimizerUpdate& op, Visitor visit) {
  visit("elements", op.elements), visit("bytes_moved", op.bytes_moved);
  visit("flops_per_element", op.flops_per_element);
}
template <class Visitor>
void ForEachField(Tabulated& op, Visitor visit) {
  visit("nanoseconds", op.nanoseconds), visit("flops", op.flops), visit("bytes_moved", op.bytes_moved);
  visit("dtype", op.dtype);
}

std::string_view Name(const Operator& op);

/// Operations the arithmetic needs (multiply-add counts two; a causal attention counts half the square).
Flops FlopsOf(const Operator& op);
/// Fewest bytes through device memory: each input read once, each output written once.
Bytes BytesMovedBy(const Operator& op);

}  // namespace tidemark
