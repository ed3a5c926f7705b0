// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/heads.h"
#include "kernels/rotary_table.h"
#include "kernels/token_places.h"

namespace tidemark::kernels {

/// Rotary position embedding (Su et al., RoFormer, 2021) on halves, as GPT-NeoX and Llama's Hugging Face code rotate:
/// element i < head_size / 2 of a head and its partner i + head_size / 2 are turned by the angle
/// p theta^(-2 i / head_size), where p is the token's place in its sequence:
///   x_i cos - x_j sin,  x_j cos + x_i sin.
/// Backward turns gradients by the opposite angle; nothing is saved. Sines and cosines are computed in fp64, or read
/// from rows of kernels/rotary_table.h in either layout: torchtitan's ComplexRoPE turns neighbours and not halves,
/// which is the same but for the order of a head's elements. An output may be its own dense input. Where only the last
/// `turned` elements of a head are turned, an even number, it is as if these were a head by themselves, of which a row
/// has the numbers; those in front of them are copied.
struct Rope {
  HeadShape shape;
  std::int64_t turned = 0;  ///< 0: all
  double theta = 10000;
  TokenPlaces places{};
  /// Where cosines and sines come from.
  enum class AnglesFrom : std::uint8_t {
    computed,  ///< the kernel itself
    table,     ///< `angles`, a layer's table: the row of the token's place
    rows,      ///< `angles`, a row for each token
  } angles_from = AnglesFrom::computed;
  RotaryLayout layout = RotaryLayout::pairs;  ///< of rows

  std::int64_t TurnedSize() const { return turned == 0 ? shape.head_size : turned; }
  /// Of the part of a head that is turned.
  RotaryRow Row() const { return {TurnedSize(), layout}; }
};

struct RopeTypes {
  TensorType q, k;
};
RopeTypes RopeOutputs(const Rope& op, DType dtype);

/// Whether these are the angles that it reads: none where it computes them, else so many rows, of a table for every
/// place at least.
bool AreAnglesOf(const Rope& op, const TensorType& angles);

void RopeForward(const Rope& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& angles,
                 const Tensor& q_out, const Tensor& k_out);
void RopeBackward(const Rope& op, const ConstTensor& dq, const ConstTensor& dk, const ConstTensor& angles,
                  const Tensor& dq_out, const Tensor& dk_out);

}  // namespace tidemark::kernels
