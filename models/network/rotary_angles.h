// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/network/decoder_parts.h"

namespace tidemark {

/// Where a layer's rotations have their cosines and sines from (Decoder::rotary_table). Of torchtitan's RoPE
/// (models/common/rope.py) each layer has one: a table in fp32 of max_context_length rows, of which every forward pass
/// takes those of its tokens, by their places, as a tensor that the backward passes of its rotations read again. What
/// is fused (Partition::fused_rope) reads the table itself.
///
///   row: 2 x 4 bytes for every pair of a head's rotated numbers (ComplexRoPE), or for every number (CosSinRoPE)
///
/// Left out of time: that rotations read rows or table, of which one row serves all heads.
class RotaryAngles {
 public:
  explicit RotaryAngles(DecoderParts& parts) : parts_(parts) {}

  /// Adds a rotation of `elements` numbers of what it reads, with the angles that it needs.
  void Rotate(std::vector<Action>& pass, std::string name, std::int64_t elements, bool backward,
              BlockBuilder::Tensors reads, BlockBuilder::Tensors writes);
  /// Of a kernel that rotates besides what else it does.
  void ReadTable(Calculate& kernel);

 private:
  bool HasTable() const { return parts_.decoder().rotary_table != Decoder::RotaryTable::none; }
  std::int64_t RowSize() const;
  void TakeRows(std::vector<Action>& pass);

  DecoderParts& parts_;
  ConstantId table_;
  TensorId rows_;  ///< of the microbatch's tokens; none where rotations read the table
};

}  // namespace tidemark
