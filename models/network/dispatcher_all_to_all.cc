// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "models/network/token_dispatcher.h"

namespace tidemark {
namespace {

/// Megatron-LM core's MoEAlltoAllTokenDispatcher (core/transformer/moe/token_dispatcher.py at d98e8a64): rows in the
/// order of the experts, sent to the ranks of their experts, gathered over those with parts of the same ones, and
/// sorted by expert where the rank has several. Sums over parts are taken in the dtype of the weights.
class AllToAllDispatcher : public TokenDispatcher {
 public:
  AllToAllDispatcher(DecoderParts& parts, const ExpertShape& shape) : parts_(parts), shape_(shape) {}

  ExpertRows Dispatch(const RoutedTokens& routed) override {
    ExpertRows rows{Rows("permuted_rows", shape_.sent), Weights("permuted_weights", shape_.sent),
                    AddCounts(b(), shape_.own_experts)};
    token_order_ = b().AddTensor("token_order", shape_.sent, Category::activation, DType::int64);
    // torch.argsort's result over the whole mask, of which the first numbers are used.
    assignment_order_ =
        b().AddTensor("assignment_order", shape_.tokens * shape_.experts, Category::activation, DType::int64);
    b().AddPointwise(b().forward(), "permute.forward", {routed.tokens, routed.weights, routed.mask},
                     {rows.tokens, rows.weights, token_order_, assignment_order_, rows.counts}, 0);
    held_ = {rows.tokens};
    rows = Both(b().forward(), rows, "dispatch", "dispatched", Leg::there);
    return Sorts() ? Sorted(b().forward(), rows, "experts.sort", "sorted") : rows;
  }

  TensorId Combine(TensorId rows) override {
    auto& forward = b().forward();
    if (Sorts()) {
      rows = SortedRows(forward, rows, "experts.unsort", "unsorted_rows");
    }
    rows = Back(forward, rows, "combine", "combined", shape_.hidden, true);
    const TensorId sum = Rows("experts_sum", shape_.tokens);
    b().AddPointwise(forward, "unpermute.forward", {rows, token_order_}, {sum});
    forward.emplace_back(Hold{"experts.return", held_, {}});
    return sum;
  }

  TensorId CombineBackward(TensorId gradient) override {
    auto& backward = b().backward();
    TensorId rows = Rows("d_permuted_rows_out", shape_.sent);
    b().AddPointwise(backward, "unpermute.backward", {gradient, token_order_}, {rows}, 0);
    rows = There(backward, rows, "combine_backward", "d_combined", shape_.hidden);
    return Sorts() ? SortedRows(backward, rows, "experts.unsort_backward", "d_unsorted_rows") : rows;
  }

  RoutedTokens DispatchBackward(const ExpertRows& gradients) override {
    auto& backward = b().backward();
    ExpertRows rows = gradients;
    if (Sorts()) {
      rows = Sorted(backward, rows, "experts.sort_backward", "d_sorted");
    }
    rows = Both(backward, rows, "dispatch_backward", "d_dispatched", Leg::back);
    const RoutedTokens routed{
        Rows("d_experts_in", shape_.tokens),
        b().AddTensor("d_routing_weights", shape_.tokens * shape_.experts, Category::activation, shape_.weights),
        {}};
    b().AddPointwise(backward, "permute.backward", {rows.tokens, rows.weights, token_order_, assignment_order_},
                     {routed.tokens, routed.weights});
    return routed;
  }

 private:
  enum class Leg : std::uint8_t { there, back };

  BlockBuilder& b() { return parts_.builder(); }
  bool Sorts() const { return shape_.own_experts > 1; }
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

  /// Message by message: first all of the tokens' and weights' one kind, then of the other.
  ExpertRows Both(std::vector<Action>& pass, const ExpertRows& rows, const std::string& action, const std::string& name,
                  Leg leg) {
    const auto one = [&](TensorId from, const char* what, std::int64_t width) {
      return leg == Leg::there ? There(pass, from, action + what, name + what, width)
                               : Back(pass, from, action + what, name + what, width, false);
    };
    return {one(rows.tokens, "_rows", shape_.hidden), one(rows.weights, "_weights", 1), rows.counts};
  }

  /// To the ranks of the experts.
  TensorId There(std::vector<Action>& pass, TensorId rows, const std::string& action, const std::string& name,
                 std::int64_t width) {
    if (shape_.ep > 1) {
      rows = ExchangeRows(parts_, pass, CollectiveKind::all_to_all, Among::expert_parallel, action + ".send", rows,
                          name, shape_.received * width);
      held_.push_back(rows);
    }
    if (shape_.etp > 1) {
      rows = ExchangeRows(parts_, pass, CollectiveKind::all_gather, Among::expert_tensor_parallel, action + ".gather",
                          rows, name + "_gathered", shape_.rows * width);
    }
    return rows;
  }

  /// From there to the ranks of the tokens.
  TensorId Back(std::vector<Action>& pass, TensorId rows, const std::string& action, const std::string& name,
                std::int64_t width, bool in_dtype_of_weights) {
    if (shape_.etp > 1) {
      const DType dtype = b().tensor(rows).dtype;
      const bool casts = in_dtype_of_weights && dtype != shape_.weights;
      if (casts) {
        rows = CastRows(b(), pass, rows, action + ".widen", name + "_wide", shape_.weights);
      }
      rows = ExchangeRows(parts_, pass, CollectiveKind::reduce_scatter, Among::expert_tensor_parallel,
                          action + ".scatter", rows, name + "_scattered", shape_.received * width);
      if (casts) {
        rows = CastRows(b(), pass, rows, action + ".narrow", name + "_narrow", dtype);
      }
    }
    if (shape_.ep > 1) {
      rows = ExchangeRows(parts_, pass, CollectiveKind::all_to_all, Among::expert_parallel, action + ".send", rows,
                          name, shape_.sent * width);
    }
    return rows;
  }

  DecoderParts& parts_;
  const ExpertShape shape_;
  TensorId token_order_, assignment_order_;  // saved
  /// What variables of MoELayer.forward name until it returns (moe_layer.py): rows as they are sent, and as they come.
  std::vector<TensorId> held_;
};

}  // namespace

std::unique_ptr<TokenDispatcher> MakeAllToAllDispatcher(DecoderParts& parts, const ExpertShape& shape) {
  return std::make_unique<AllToAllDispatcher>(parts, shape);
}

}  // namespace tidemark
