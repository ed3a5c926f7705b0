// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/network/decoder_parts.h"

namespace tidemark {

/// Sizes of a layer's experts on one rank, for one microbatch (megatron_experts.h, torchtitan_experts.h).
struct ExpertShape {
  explicit ExpertShape(const DecoderParts& parts);

  std::int64_t experts = 0, own_experts = 0;  ///< of the layer, and on this rank
  std::int64_t ep = 1, etp = 1;
  std::int64_t hidden = 0;
  std::int64_t tokens = 0;      ///< that the rank has rows of
  std::int64_t sent = 0;        ///< rows that it makes of them, one for each expert that a token goes to
  std::int64_t received = 0;    ///< rows for its experts from the ranks with other experts, itself among them
  std::int64_t rows = 0;        ///< of its experts: those that all ranks with parts of the same experts have received
  DType weights = DType::bf16;  ///< of the router

  /// Ranks whose tokens the same experts see.
  std::int64_t Ranks() const { return ep * etp; }

  /// One product for each expert, of as many rows each, rounded up: with its weight [n, k], and that of its gradient.
  Gemm Product(const DecoderParts& parts, std::int64_t n, std::int64_t k) const;
  Gemm WeightGradient(const DecoderParts& parts, std::int64_t n, std::int64_t k) const;
};

/// Tokens and how they are routed: [tokens, hidden], [tokens, experts] and a mask of the same size.
struct RoutedTokens {
  TensorId tokens, weights, mask;
};

/// What a rank's experts see: [rows, hidden], expert by expert; of each row the weight; and how many rows each expert
/// has.
struct ExpertRows {
  TensorId tokens, weights, counts;
};

/// Brings tokens to their experts and back. Each half of the backward pass undoes one of the forward pass.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;
  virtual ExpertRows Dispatch(const RoutedTokens& routed) = 0;
  /// From what the experts make of their rows to the sums [tokens, hidden].
  virtual TensorId Combine(TensorId rows) = 0;
  /// What variables of MoELayer.forward name until it returns, once both halves are written (moe_layer.py:
  /// custom_forward): what is sent, what comes, and what comes back.
  virtual std::vector<TensorId> Held() const = 0;
  virtual TensorId CombineBackward(TensorId gradient) = 0;
  /// Gradients of the tokens and of the weights; there is none of the mask, as there is none of counts.
  virtual RoutedTokens DispatchBackward(const ExpertRows& gradients) = 0;
};

/// The one that the network names, for `shape.experts` of more than 0.
std::unique_ptr<TokenDispatcher> MakeTokenDispatcher(DecoderParts& parts, const ExpertShape& shape);

std::unique_ptr<TokenDispatcher> MakeAllToAllDispatcher(DecoderParts& parts, const ExpertShape& shape);
std::unique_ptr<TokenDispatcher> MakeAllGatherDispatcher(DecoderParts& parts, const ExpertShape& shape);

/// Rows of each of a rank's experts.
TensorId AddCounts(BlockBuilder& builder, std::int64_t experts);

/// A collective among one of the groups of a layer's experts, into a new tensor of the same dtype.
TensorId ExchangeRows(BlockBuilder& builder, std::vector<Action>& pass, CollectiveKind kind, Among among,
                      const std::string& name, TensorId from, const std::string& to, std::int64_t elements);

/// The same numbers in another dtype.
TensorId CastRows(BlockBuilder& builder, std::vector<Action>& pass, TensorId from, const std::string& name,
                  const std::string& to, DType dtype);

}  // namespace tidemark
