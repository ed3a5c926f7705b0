// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "models/network/token_dispatcher.h"

namespace tidemark {
namespace {

/// Megatron-LM core's MoEAllGatherTokenDispatcher (core/transformer/moe/token_dispatcher.py at d98e8a64): all ranks
/// whose tokens the same experts see gather all of them, each picks what its experts see, and adds up their results for
/// all tokens, which are summed over the ranks in the dtype of the weights.
class AllGatherDispatcher : public TokenDispatcher {
 public:
  AllGatherDispatcher(DecoderParts& parts, const ExpertShape& shape)
      : parts_(parts), shape_(shape), all_tokens_(shape.tokens * shape.Ranks()) {}

  ExpertRows Dispatch(const RoutedTokens& routed) override {
    auto& forward = b().forward();
    RoutedTokens all = routed;
    if (shape_.Ranks() > 1) {
      all.mask = Gather(forward, routed.mask, "dispatch_mask", "gathered_mask", shape_.experts);
      all.weights = Gather(forward, routed.weights, "dispatch_weights", "gathered_weights", shape_.experts);
      all.tokens = parts_.AddPassing("gathered_tokens", all_tokens_ * shape_.hidden);
      b().AddCollective(forward, CollectiveKind::all_gather, "dispatch_rows.gather", routed.tokens, all.tokens).among =
          Group();
      held_ = {all.weights};
    }
    const ExpertRows rows{b().AddTensor("permuted_rows", shape_.rows * shape_.hidden),
                          b().AddTensor("permuted_weights", shape_.rows, Category::activation, shape_.weights),
                          AddCounts(b(), shape_.own_experts)};
    token_order_ = b().AddTensor("token_order", shape_.rows, Category::activation, DType::int64);
    // The mask of the rank's experts, transposed, by which the weights are picked.
    assignment_order_ = b().AddTensor("own_mask", all_tokens_ * shape_.own_experts, Category::activation, DType::u8);
    b().AddPointwise(forward, "permute.forward", {all.tokens, all.weights, all.mask},
                     {rows.tokens, rows.weights, token_order_, assignment_order_, rows.counts}, 0);
    return rows;
  }

  TensorId Combine(TensorId rows) override {
    auto& forward = b().forward();
    const bool sums = shape_.Ranks() > 1;
    TensorId sum = b().AddTensor(sums ? "experts_partial_sum" : "experts_sum", all_tokens_ * shape_.hidden);
    b().AddPointwise(forward, "unpermute.forward", {rows, token_order_}, {sum});
    if (!sums) {
      return sum;
    }
    const TensorId partial = sum;
    const bool casts = Casts();
    if (casts) {
      sum = CastRows(b(), forward, sum, "combine.widen", "experts_partial_sum_wide", shape_.weights);
    }
    sum = ExchangeRows(b(), forward, CollectiveKind::reduce_scatter, Group(), "combine.scatter", sum,
                       casts ? "experts_sum_wide" : "experts_sum", shape_.tokens * shape_.hidden);
    if (casts) {
      sum = CastRows(b(), forward, sum, "combine.narrow", "experts_sum", b().compute());
    }
    forward.emplace_back(Hold{"combine.return", {partial}, {}});  // token_combine's argument, until it returns
    return sum;
  }

  std::vector<TensorId> Held() const override { return held_; }

  TensorId CombineBackward(TensorId gradient) override {
    auto& backward = b().backward();
    if (shape_.Ranks() > 1) {
      const bool casts = Casts();
      if (casts) {
        gradient = CastRows(b(), backward, gradient, "combine.narrow_backward", "d_experts_sum_wide", shape_.weights);
      }
      gradient =
          Gather(backward, gradient, "combine_backward", casts ? "d_partial_sum_wide" : "d_partial_sum", shape_.hidden);
      if (casts) {
        gradient = CastRows(b(), backward, gradient, "combine.widen_backward", "d_partial_sum", b().compute());
      }
    }
    const TensorId rows = b().AddTensor("d_experts_out", shape_.rows * shape_.hidden);
    b().AddPointwise(backward, "unpermute.backward", {gradient, token_order_}, {rows}, 0);
    return rows;
  }

  RoutedTokens DispatchBackward(const ExpertRows& gradients) override {
    auto& backward = b().backward();
    const bool scatters = shape_.Ranks() > 1;
    RoutedTokens all{b().AddTensor(scatters ? "d_gathered_tokens" : "d_experts_in", all_tokens_ * shape_.hidden),
                     b().AddTensor(scatters ? "d_gathered_weights" : "d_routing_weights", all_tokens_ * shape_.experts,
                                   Category::activation, shape_.weights),
                     {}};
    b().AddPointwise(backward, "permute.backward",
                     {gradients.tokens, gradients.weights, token_order_, assignment_order_}, {all.tokens, all.weights});
    if (!scatters) {
      return all;
    }
    const auto scatter = [&](TensorId from, const char* action, const char* name, std::int64_t width) {
      return ExchangeRows(b(), backward, CollectiveKind::reduce_scatter, Group(), action, from, name,
                          shape_.tokens * width);
    };
    const TensorId tokens = scatter(all.tokens, "dispatch_rows.scatter_gradient", "d_experts_in", shape_.hidden);
    return {tokens, scatter(all.weights, "dispatch_weights.scatter_gradient", "d_routing_weights", shape_.experts), {}};
  }

 private:
  BlockBuilder& b() { return parts_.builder(); }
  bool Casts() const { return shape_.weights != parts_.partition().compute; }
  Among Group() const {
    if (shape_.etp == 1) {
      return Among::expert_parallel;
    }
    return shape_.ep == 1 ? Among::expert_tensor_parallel : Among::all_experts;
  }

  TensorId Gather(std::vector<Action>& pass, TensorId from, const std::string& action, const std::string& name,
                  std::int64_t width) {
    return ExchangeRows(b(), pass, CollectiveKind::all_gather, Group(), action + ".gather", from, name,
                        all_tokens_ * width);
  }

  DecoderParts& parts_;
  const ExpertShape shape_;
  const std::int64_t all_tokens_;
  TensorId token_order_, assignment_order_;  // saved
  std::vector<TensorId> held_;
};

}  // namespace

std::unique_ptr<TokenDispatcher> MakeAllGatherDispatcher(DecoderParts& parts, const ExpertShape& shape) {
  return std::make_unique<AllGatherDispatcher>(parts, shape);
}

}  // namespace tidemark
