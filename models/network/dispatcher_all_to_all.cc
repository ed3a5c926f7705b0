// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "models/network/token_dispatcher.h"

namespace tidemark {
namespace {

/// Megatron-LM core's MoEAlltoAllTokenDispatcher (core/transformer/moe/token_dispatcher.py at d98e8a64): rows in the
/// order of the experts, sent to the ranks of their experts, gathered over those with parts of the same ones, and
/// sorted by expert where the rank has several. Sums over parts are taken in the dtype of the weights, and so is their
/// gradient gathered.
class AllToAllDispatcher : public TokenDispatcher {
 public:
  AllToAllDispatcher(DecoderParts& parts, const ExpertShape& shape) : parts_(parts), shape_(shape) {}

  ExpertRows Dispatch(const RoutedTokens& routed) override {
    auto& forward = b().forward();
    ExpertRows rows{Rows("permuted_rows", shape_.sent), Weights("permuted_weights", shape_.sent),
                    AddCounts(b(), shape_.own_experts)};
    token_order_ = b().AddTensor("token_order", shape_.sent, Category::activation, DType::int64);
    // torch.argsort's result over the whole mask, of which the first numbers are used.
    assignment_order_ =
        b().AddTensor("assignment_order", shape_.tokens * shape_.experts, Category::activation, DType::int64);
    b().AddPointwise(forward, "permute.forward", {routed.tokens, routed.weights, routed.mask},
                     {rows.tokens, rows.weights, token_order_, assignment_order_, rows.counts}, 0);
    held_ = {rows.tokens};
    if (shape_.ep > 1) {
      rows.tokens = Send(forward, rows.tokens, "dispatch_rows", "dispatched_rows", shape_.received * shape_.hidden);
      rows.weights = Send(forward, rows.weights, "dispatch_weights", "dispatched_weights", shape_.received);
      held_.insert(held_.end(), {rows.tokens, rows.weights});
    }
    if (shape_.etp > 1) {
      rows.tokens = Gather(forward, rows.tokens, "dispatch_rows", "gathered_rows", shape_.hidden);
      rows.weights = Gather(forward, rows.weights, "dispatch_weights", "gathered_weights", 1);
    }
    return Sorts() ? Sorted(forward, rows, "experts.sort", "sorted") : rows;
  }

  TensorId Combine(TensorId rows) override {
    auto& forward = b().forward();
    std::vector<TensorId> named = {rows};
    if (Sorts()) {
      rows = SortedRows(forward, rows, "experts.unsort", "unsorted_rows");
      named.push_back(rows);
    }
    if (shape_.etp > 1) {
      const bool casts = Casts();
      if (casts) {
        rows = CastRows(b(), forward, rows, "combine.widen", "combined_wide", shape_.weights);
      }
      rows = Scatter(forward, rows, "combine", casts ? "combined_part_wide" : "combined_part", shape_.hidden);
      if (casts) {
        rows = CastRows(b(), forward, rows, "combine.narrow", "combined_part", b().compute());
      }
      // combine_preprocess and who calls it name what the experts have made, sorted and not, until it returns.
      forward.emplace_back(Hold{"combine.return", named, {}});
    }
    if (shape_.ep > 1) {
      rows = Send(forward, rows, "combine", "combined", shape_.sent * shape_.hidden);
    }
    held_.push_back(rows);
    const TensorId sum = Rows("experts_sum", shape_.tokens);
    b().AddPointwise(forward, "unpermute.forward", {rows, token_order_}, {sum});
    return sum;
  }

  std::vector<TensorId> Held() const override { return held_; }

  TensorId CombineBackward(TensorId gradient) override {
    auto& backward = b().backward();
    TensorId rows = Rows("d_permuted_rows_out", shape_.sent);
    b().AddPointwise(backward, "unpermute.backward", {gradient, token_order_}, {rows}, 0);
    if (shape_.ep > 1) {
      rows = Send(backward, rows, "combine_backward", "d_combined", shape_.received * shape_.hidden);
    }
    if (shape_.etp > 1) {
      const bool casts = Casts();
      if (casts) {
        rows = CastRows(b(), backward, rows, "combine.narrow_backward", "d_combined_wide", shape_.weights);
      }
      rows = Gather(backward, rows, "combine_backward", casts ? "d_gathered_wide" : "d_gathered", shape_.hidden);
      if (casts) {
        rows = CastRows(b(), backward, rows, "combine.widen_backward", "d_gathered", b().compute());
      }
    }
    return Sorts() ? SortedRows(backward, rows, "experts.unsort_backward", "d_unsorted_rows") : rows;
  }

  RoutedTokens DispatchBackward(const ExpertRows& gradients) override {
    auto& backward = b().backward();
    ExpertRows rows = gradients;
    if (Sorts()) {
      rows = Sorted(backward, rows, "experts.sort_backward", "d_sorted");
    }
    if (shape_.etp > 1) {
      rows.tokens = Scatter(backward, rows.tokens, "dispatch_rows", "d_scattered_rows", shape_.hidden);
      rows.weights = Scatter(backward, rows.weights, "dispatch_weights", "d_scattered_weights", 1);
    }
    if (shape_.ep > 1) {
      rows.tokens =
          Send(backward, rows.tokens, "dispatch_rows_backward", "d_dispatched_rows", shape_.sent * shape_.hidden);
      rows.weights = Send(backward, rows.weights, "dispatch_weights_backward", "d_dispatched_weights", shape_.sent);
    }
    const RoutedTokens routed{
        Rows("d_experts_in", shape_.tokens),
        b().AddTensor("d_routing_weights", shape_.tokens * shape_.experts, Category::activation, shape_.weights),
        {}};
    b().AddPointwise(backward, "permute.backward", {rows.tokens, rows.weights, token_order_, assignment_order_},
                     {routed.tokens, routed.weights});
    return routed;
  }

 private:
  BlockBuilder& b() { return parts_.builder(); }
  bool Sorts() const { return shape_.own_experts > 1; }
  bool Casts() const { return shape_.weights != parts_.partition().compute; }
  TensorId Rows(const std::string& name, std::int64_t rows) { return b().AddTensor(name, rows * shape_.hidden); }
  TensorId Weights(const std::string& name, std::int64_t rows) {
    return b().AddTensor(name, rows, Category::activation, shape_.weights);
  }

  TensorId SortedRows(std::vector<Action>& pass, TensorId rows, const std::string& action, const std::string& name) {
    const TensorId sorted = Rows(name, shape_.rows);
    b().AddPointwise(pass, action, {rows}, {sorted}, 0);
    return sorted;
  }

  ExpertRows Sorted(std::vector<Action>& pass, const ExpertRows& rows, const std::string& action,
                    const std::string& name) {
    const ExpertRows sorted{Rows(name + "_rows", shape_.rows), Weights(name + "_weights", shape_.rows), rows.counts};
    b().AddPointwise(pass, action, {rows.tokens, rows.weights}, {sorted.tokens, sorted.weights}, 0);
    return sorted;
  }

  /// Between the ranks with different experts.
  TensorId Send(std::vector<Action>& pass, TensorId from, const std::string& action, const std::string& to,
                std::int64_t elements) {
    return ExchangeRows(b(), pass, CollectiveKind::all_to_all, Among::expert_parallel, action + ".send", from, to,
                        elements);
  }
  /// Over the ranks with parts of the same ones, rows of `width`.
  TensorId Gather(std::vector<Action>& pass, TensorId from, const std::string& action, const std::string& to,
                  std::int64_t width) {
    return ExchangeRows(b(), pass, CollectiveKind::all_gather, Among::expert_tensor_parallel, action + ".gather", from,
                        to, shape_.rows * width);
  }
  TensorId Scatter(std::vector<Action>& pass, TensorId from, const std::string& action, const std::string& to,
                   std::int64_t width) {
    return ExchangeRows(b(), pass, CollectiveKind::reduce_scatter, Among::expert_tensor_parallel, action + ".scatter",
                        from, to, shape_.received * width);
  }

  DecoderParts& parts_;
  const ExpertShape shape_;
  TensorId token_order_, assignment_order_;  // saved
  std::vector<TensorId> held_;
};

}  // namespace

std::unique_ptr<TokenDispatcher> MakeAllToAllDispatcher(DecoderParts& parts, const ExpertShape& shape) {
  return std::make_unique<AllToAllDispatcher>(parts, shape);
}

}  // namespace tidemark
