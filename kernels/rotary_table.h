// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/tensor.h"
#include "kernels/token_places.h"

namespace tidemark::kernels {

// A layer's table of cosines and sines, a row for each place of a sequence, and the rows of a microbatch's tokens:
// torchtitan's RoPE.cache, and what _reshape_cache makes of it by `positions` (torchtitan/models/common/rope.py).
// kernels/rope.h turns heads by either. Angles are computed in fp64 and rounded once; torchtitan computes them in fp32.

/// How a row holds the cosines and sines of one place's angles.
enum class RotaryLayout : std::uint8_t {
  pairs,     ///< a complex number for each pair of a head: cos, sin, cos, sin, ... (torchtitan's ComplexRoPE)
  elements,  ///< all elements' cosines, then their sines, both halves of a head alike (torchtitan's CosSinRoPE)
};

/// The row of a head of which `turned` elements are turned, an even number.
struct RotaryRow {
  std::int64_t turned = 0;
  RotaryLayout layout = RotaryLayout::pairs;

  /// Of each number; copies are half a head apart.
  constexpr std::int64_t copies() const { return layout == RotaryLayout::pairs ? 1 : 2; }
  constexpr std::int64_t size() const { return copies() * turned; }
  /// Where those of a pair are, the first copy.
  constexpr std::int64_t CosineOf(std::int64_t pair) const { return layout == RotaryLayout::pairs ? 2 * pair : pair; }
  constexpr std::int64_t SineOf(std::int64_t pair) const {
    return layout == RotaryLayout::pairs ? 2 * pair + 1 : turned + pair;
  }
};

/// [positions, RowSize()]: pair i is turned by the angle p theta^(-2 i / turned) at place p.
struct RotaryTable {
  std::int64_t positions = 0, turned = 0;
  RotaryLayout layout = RotaryLayout::pairs;
  double theta = 10000;

  constexpr RotaryRow Row() const { return {turned, layout}; }
  constexpr std::int64_t RowSize() const { return Row().size(); }
};

/// Of pair `pair`: its angle at place 1.
double RotaryFrequency(double theta, std::int64_t turned, std::int64_t pair);

TensorType RotaryTableType(const RotaryTable& op, DType dtype);
void FillRotaryTable(const RotaryTable& op, const Tensor& table);

/// A copy of a table's row for each token, [tokens, RowSize()]: that of its place in its sequence.
struct RotaryRows {
  RotaryTable table;
  std::int64_t tokens = 0, sequence = 0;
  TokenPlaces places{};  ///< of the `sequence` tokens of each sequence

  constexpr std::int64_t PlaceOf(std::int64_t token) const { return places.Of(token % sequence, sequence); }
};

TensorType RotaryRowsOutput(const RotaryRows& op, DType table);
void TakeRotaryRows(const RotaryRows& op, const ConstTensor& table, const Tensor& rows);

}  // namespace tidemark::kernels
