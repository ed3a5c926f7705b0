// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/heads.h"
#include "kernels/rope.h"
#include "models/network/block.h"
#include "profiler/execute/operation.h"

namespace tidemark {

/// Operands of one row of the network's tables: first its tensors, then its weights, constants of its block, and then
/// gradients that it adds to.
/// Each family of operators binds its rows in a class of its own on top of this.
class RowOperands {
 public:
  /// Fails where a weight is not in the buffer that is to hold it.
  static Result<RowOperands> Of(const OperationContext& context, const Calculate& row);

 protected:
  using ConstTensor = kernels::ConstTensor;
  using TensorType = kernels::TensorType;
  using Writes = std::span<const kernels::Tensor>;

  RowOperands(const OperationContext& context, const Calculate& row, std::vector<ConstTensor> weights);

  std::size_t tensors() const { return row_.reads.size(); }
  const Parameter& Weight(std::size_t i) const { return block_.parameters[row_.parameters[i].index]; }
  const Parameter& Gradient(std::size_t i) const { return block_.parameters[row_.gradients[i].index]; }
  ConstTensor WeightRead(std::size_t i) const { return weights_[i]; }
  std::optional<ConstTensor> BiasRead() const {
    return row_.parameters.size() > 1 ? std::optional<ConstTensor>(WeightRead(1)) : std::nullopt;
  }
  /// Of write number `i`: that of what it adds to, or of gradients; put aside for later it is the activations'.
  DType GradientType(std::size_t i) const;
  /// Tensors from number `begin` on.
  std::vector<ConstTensor> Reads(std::size_t begin) const;

  /// A rotation of this rank's heads, and the cosines and sines that it reads: none, its last tensor, which has rows of
  /// the tokens, or its block's table.
  kernels::Rope MakeRope() const;
  ConstTensor Angles(const kernels::Rope& rope) const;

  static std::int64_t Elements(const std::vector<ConstTensor>& parts);
  /// Whether a router's logits and weights are wider than activations, so that products of both go through tensors of
  /// their own.
  bool RoutesWide() const;

  const OperationContext& c_;
  const Calculate& row_;
  std::vector<ConstTensor> weights_;
  const Block& block_;
  const Decoder& decoder_;    ///< whose block it is: one of two encoders
  kernels::HeadShape shape_;  ///< of this rank's heads in a microbatch
};

/// A linear layer's product, and its bias where that has an operation of its own.
Result<Operation> BindLinear(const RowOperands& operands, const Gemm& product);
Result<Operation> BindBias(const RowOperands& operands, bool forward);
/// What a head's loss in chunks has besides its passes over logits; nothing: the operation is no part of it.
std::optional<Result<Operation>> BindLossInChunks(const RowOperands& operands);
/// What a ring has beside its steps of attention (models/network/ring_attention.h); nothing: the operation is no part
/// of it.
std::optional<Result<Operation>> BindRingAttention(const RowOperands& operands);
/// Rotations of queries and keys, and the angles of a microbatch's tokens (models/network/rotary_angles.h).
Operation BindRotation(const RowOperands& operands, bool backward);
Operation BindRotaryRows(const RowOperands& operands);
/// What multi-latent attention has beside linear layers, norms and attention (models/network/latent_projections.h);
/// nothing: the operation is no part of it.
std::optional<Result<Operation>> BindLatentHeads(const RowOperands& operands);
/// What mixtures of experts have (models/network/megatron_experts.h) beside sums and, of shared experts, a dense layer;
/// nothing: the operation is no part of it.
std::optional<Result<Operation>> BindExperts(const RowOperands& operands);
/// That of these which is theirs alone whose outputs are weighted (models/network/torchtitan_experts.h); nothing: the
/// operation is no part of it.
std::optional<Result<Operation>> BindTorchtitanExperts(const RowOperands& operands);
/// That of these which is the router's; nothing: the operation is no part of it.
std::optional<Result<Operation>> BindRouter(const RowOperands& operands);
/// Attention and norms in a framework's single operations (models/network/eager_attention.h, eager_norm.h).
Result<Operation> BindEagerAttention(const RowOperands& operands);
Result<Operation> BindEagerNorm(const RowOperands& operands);

}  // namespace tidemark
