// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// To which experts a router sends a token: the `per_token` of `experts` whose logits are largest, the largest first,
/// of equal ones the one of the lowest number; NaN counts as larger than any number. A token's weights are the softmax
/// over the logits of those that it is sent to (Megatron-LM core's topk_softmax_with_capacity of moe_utils.py, without
/// moe_router_pre_softmax).
///
///   chosen   [tokens, per_token] numbers of experts, int64
///   scores   [tokens, per_token] their weights, in the dtype of statistics
///   weights  [tokens, experts] the same in the logits' dtype, 0 of experts that are not chosen
///   mask     [tokens, experts] 1 where an expert is chosen, u8
///
/// The choice is a step function of logits: its gradient is that of the weights alone, and none of logits that are not
/// chosen.
struct Routing {
  std::int64_t tokens = 0, experts = 0, per_token = 0;

  /// Number `i` of what AssignRoundRobin chooses: turn after turn, each group's first expert, then each one's second.
  constexpr std::int64_t RoundRobin(std::int64_t i, std::int64_t groups) const {
    const std::int64_t turn = i % experts;
    return turn % groups * (experts / groups) + turn / groups;
  }
};

struct RoutingTypes {
  TensorType weights, mask, scores, chosen;
};
/// Fails where there are not as many numbers of experts as tokens go to.
void CheckChosen(const Routing& op, const TensorType& chosen);
RoutingTypes RoutingOutputs(const Routing& op, DType logits);

void ChooseExperts(const Routing& op, const ConstTensor& logits, const Tensor& chosen);
/// Without a look at logits: of experts in `groups` of as many, one behind the other, those of all groups in turn. Each
/// gets as many tokens where tokens times `per_token` is a multiple of their number.
void AssignRoundRobin(const Routing& op, std::int64_t groups, const Tensor& chosen);
/// Weights of experts that are chosen, whoever has chosen them.
void WeighExperts(const Routing& op, const ConstTensor& logits, const ConstTensor& chosen, const Tensor& weights,
                  const Tensor& mask, const Tensor& scores);
void RoutingBackward(const Routing& op, const ConstTensor& weight_gradients, const ConstTensor& scores,
                     const ConstTensor& chosen, const Tensor& logit_gradients);

}  // namespace tidemark::kernels
