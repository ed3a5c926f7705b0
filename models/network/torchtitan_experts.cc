// SPDX-License-Identifier: Apache-2.0
#include "models/network/torchtitan_experts.h"

#include <utility>

namespace tidemark {

TorchtitanExperts::TorchtitanExperts(DecoderParts& parts)
    : parts_(parts), shape_(parts), width_(experts().ffn), shared_(parts, "shared_", experts().shared_ffn) {}

TensorId TorchtitanExperts::Forward(TensorId input) {
  auto& forward = b().forward();
  auto& parts = b().block().parts;
  parts.push_back({LayerPart::Kind::norm, forward.size(), 0});
  norm_ = parts_.NormForward("norm2", input, "experts_in");
  parts.back().end = forward.size();
  AddParameters();
  LayerPart whole{LayerPart::Kind::feed_forward, forward.size(), 0};
  Route();
  rows_ = Dispatch();
  TensorId output = Combine(RunExperts());
  if (experts().shared_ffn > 0) {
    const TensorId shared = shared_.Forward(parts_.ColumnOver(norm_, "shared_in"));
    const TensorId sum = parts_.AddResidual("experts_and_shared");
    b().AddPointwise(forward, "shared_experts.sum", {output, shared}, {sum});
    output = sum;
  }
  forward.emplace_back(Hold{"experts.return", {norm_.output, map_}, {}});
  whole.end = forward.size();
  parts.push_back(whole);
  return output;
}

/// In the order of MoE's constructor; those of shared experts, whose linear layers add them, come last.
void TorchtitanExperts::AddParameters() {
  w1_ = AddExperts("experts_w1", width_, shape_.hidden);
  w2_ = AddExperts("experts_w2", shape_.hidden, width_);
  w3_ = AddExperts("experts_w3", width_, shape_.hidden);
  gate_weight_ = parts_.AddReplicatedMatrix("router", shape_.experts, shape_.hidden);
}

bool ShardsByExpert(const Experts& experts, const Partition& partition) {
  const std::int64_t beside = partition.ep > 1 ? partition.tp / partition.etp : 1;
  return partition.ranks * partition.cp * beside <= experts.count;
}

ParameterId TorchtitanExperts::AddExperts(const std::string& name, std::int64_t out, std::int64_t in) {
  const std::int64_t own = shape_.own_experts * out * in;
  const bool by_experts = ShardsByExpert(experts(), parts_.partition());
  return b().AddParameter({.name = name,
                           .elements = own,
                           .rows = shape_.own_experts * out,
                           .sharded_rows = by_experts ? shape_.own_experts : out,
                           .elements_full = own * shape_.Ranks(),
                           .experts = shape_.own_experts});
}

void TorchtitanExperts::Route() {
  auto& forward = b().forward();
  const std::int64_t all = shape_.tokens * shape_.experts;
  Gemm gemm = parts_.MakeGemm(shape_.tokens, shape_.experts, shape_.hidden);
  gemm.output = shape_.weights;
  const TensorId logits = AddWide("router_logits", all);
  gate_in_ = AddWide("gate_in", shape_.tokens * shape_.hidden);
  gate_weight_wide_ = AddWide("gate_weight", shape_.experts * shape_.hidden);
  b().AddPointwise(forward, "router.widen", {norm_.output}, {gate_in_, gate_weight_wide_}, 0).parameters = {
      gate_weight_};
  b().Add(forward, "router.forward", gemm, {gate_in_, gate_weight_wide_}, {logits});
  scores_ = AddWide("routing_scores", all);
  map_ = b().AddTensor("routing_map", all, Category::activation, DType::u8);
  chosen_scores_ = b().AddTensor("chosen_scores", shape_.sent, Category::activation, DType::fp32);
  chosen_ = b().AddTensor("chosen_experts", shape_.sent, Category::activation, DType::int64);
  b().AddPointwise(forward, "route.forward", {logits}, {scores_, map_, chosen_scores_, chosen_}, 8);
}

/// Weights stay with who sends the rows.
ExpertRows TorchtitanExperts::Dispatch() {
  auto& forward = b().forward();
  ExpertRows rows{b().AddTensor("permuted_rows", shape_.sent * shape_.hidden), AddWide("permuted_weights", shape_.sent),
                  AddCounts(b(), shape_.own_experts)};
  token_order_ = b().AddTensor("token_order", shape_.sent, Category::activation, DType::int64);
  assignment_order_ = b().AddTensor("assignment_order", shape_.sent, Category::activation, DType::int64);
  b().AddPointwise(forward, "permute.forward", {norm_.output, scores_, map_},
                   {rows.tokens, rows.weights, token_order_, assignment_order_, rows.counts}, 0);
  if (shape_.ep > 1) {
    const TensorId permuted = rows.tokens;
    rows.tokens = ExchangeRows(b(), forward, CollectiveKind::all_to_all, Among::expert_parallel, "dispatch_rows.send",
                               permuted, "dispatched_rows", shape_.received * shape_.hidden);
    rank_order_ = b().AddTensor("rank_order", shape_.received, Category::activation, DType::int64);
    b().AddPointwise(forward, "experts.order", {rows.counts}, {rank_order_}, 0);
    const TensorId sorted = AddRows("sorted_rows", shape_.hidden);
    b().AddPointwise(forward, "experts.gather", {rows.tokens, rank_order_}, {sorted}, 0);
    rows.tokens = sorted;
    forward.emplace_back(Hold{"dispatch.return", {permuted}, {}});
  }
  return rows;
}

void TorchtitanExperts::Product(const std::string& name, ParameterId weight, TensorId input, TensorId output) {
  const std::int64_t out = b().tensor(output).elements / shape_.rows, in = b().tensor(input).elements / shape_.rows;
  b().Add(b().forward(), name + ".forward", shape_.Product(parts_, out, in), {input, rows_.counts}, {output})
      .parameters = {weight};
}

TensorId TorchtitanExperts::RunExperts() {
  w1_out_ = AddRows("experts_w1_out", width_);
  Product("experts_w1", w1_, rows_.tokens, w1_out_);
  w3_out_ = AddRows("experts_w3_out", width_);
  Product("experts_w3", w3_, rows_.tokens, w3_out_);
  LayerPart activation{LayerPart::Kind::activation, b().forward().size(), 0};
  Activate();
  activation.end = b().forward().size();
  b().block().parts.push_back(activation);
  const TensorId output = AddRows("experts_out", shape_.hidden);
  Product("experts_w2", w2_, down_in_, output);
  return output;
}

void TorchtitanExperts::Activate() {
  auto& forward = b().forward();
  if (IsFused()) {
    down_in_ = AddRows("experts_down_in", width_);
    b().AddPointwise(forward, "experts_fused_glu.forward", {w1_out_, w3_out_}, {down_in_}, 5);
    return;
  }
  silu_ = AddRows("experts_silu", width_);
  b().AddPointwise(forward, "experts_silu.forward", {w1_out_}, {silu_}, 4);
  down_in_ = AddRows("experts_down_in", width_);
  b().AddPointwise(forward, "experts_product.forward", {silu_, w3_out_}, {down_in_});
}

/// Who has called the experts names what they return until it returns itself.
TensorId TorchtitanExperts::Combine(TensorId output) {
  auto& forward = b().forward();
  const std::int64_t elements = shape_.sent * shape_.hidden;
  returned_ = output;
  if (shape_.ep > 1) {
    const TensorId unsorted = b().AddTensor("unsorted_rows", shape_.received * shape_.hidden);
    b().AddPointwise(forward, "experts.scatter", {output, rank_order_}, {unsorted}, 0);
    returned_ = ExchangeRows(b(), forward, CollectiveKind::all_to_all, Among::expert_parallel, "combine.send", unsorted,
                             "combined", elements);
  }
  const TensorId zeros = parts_.AddResidual("experts_zeros");
  const std::int64_t zeroed = b().tensor(zeros).elements;
  b().Add(forward, "combine.zero", Pointwise{zeroed, (SizeOf(b().compute()) * zeroed).count(), 0}, {}, {zeros});
  const TensorId narrow = returned_;
  returned_ = CastRows(b(), forward, narrow, "combine.widen", "combined_wide", shape_.weights);
  const TensorId wide = AddWide("experts_weighted_wide", elements);
  b().AddPointwise(forward, "combine.weigh", {returned_, rows_.weights}, {wide});
  const TensorId weighted = CastRows(b(), forward, wide, "combine.narrow", "experts_weighted", b().compute());
  forward.emplace_back(Hold{"combine.cast", {narrow}, {}});
  const TensorId sum = parts_.AddResidual("experts_sum");
  b().AddPointwise(forward, "unpermute.forward", {weighted, token_order_, zeros}, {sum});
  forward.emplace_back(Hold{"combine.return", {output}, {}});
  return sum;
}

// In the order of autograd: what ran last first, and what they hand back added up in place in the first.
TensorId TorchtitanExperts::Backward(TensorId output_gradient, std::string input_gradient_name) {
  auto& backward = b().backward();
  TensorId sum;
  if (experts().shared_ffn > 0) {
    sum = shared_.Backward(output_gradient);
  }
  TensorId d_row_weights;
  TensorId d_rows = ExpertsBackward(CombineBackward(output_gradient, d_row_weights));
  if (shape_.ep > 1) {
    const TensorId unsorted = b().AddTensor("d_sorted_rows", shape_.received * shape_.hidden);
    b().AddPointwise(backward, "experts.gather_backward", {d_rows, rank_order_}, {unsorted}, 0);
    d_rows = ExchangeRows(b(), backward, CollectiveKind::all_to_all, Among::expert_parallel,
                          "dispatch_rows_backward.send", unsorted, "d_dispatched_rows", shape_.sent * shape_.hidden);
  }
  const TensorId d_input = parts_.AddResidual("d_experts_in");
  const TensorId d_weights = AddWide("d_routing_weights", shape_.tokens * shape_.experts);
  b().AddPointwise(backward, "permute.backward", {d_rows, d_row_weights, token_order_, assignment_order_},
                   {d_input, d_weights});
  if (sum.valid()) {
    AddTo(sum, d_input, "shared_experts.sum_input_gradient");
  } else {
    sum = d_input;
  }
  AddTo(sum, RouteBackward(d_weights), "router.sum_input_gradient");
  return parts_.NormBackward(norm_, sum, std::move(input_gradient_name));
}

void TorchtitanExperts::AddTo(TensorId sum, TensorId addend, const std::string& name) {
  b().AddPointwise(b().backward(), name, {sum, addend}, {sum});
}

TensorId TorchtitanExperts::CombineBackward(TensorId gradient, TensorId& row_weights_gradient) {
  auto& backward = b().backward();
  const std::int64_t elements = shape_.sent * shape_.hidden;
  TensorId rows = b().AddTensor("d_experts_weighted", elements);
  b().AddPointwise(backward, "unpermute.backward", {gradient, token_order_}, {rows}, 0);
  rows = CastRows(b(), backward, rows, "combine.narrow_backward", "d_experts_weighted_wide", shape_.weights);
  const TensorId products = AddWide("d_row_weights_products", elements);
  const TensorId d_returned = AddWide("d_combined_wide", elements);
  row_weights_gradient = AddWide("d_row_weights", shape_.sent);
  b().AddPointwise(backward, "combine.weigh_backward", {returned_, rows_.weights, rows},
                   {products, d_returned, row_weights_gradient}, 3);
  const TensorId d_output = CastRows(b(), backward, d_returned, "combine.widen_backward", "d_combined", b().compute());
  if (shape_.ep == 1) {
    return d_output;
  }
  const TensorId received =
      ExchangeRows(b(), backward, CollectiveKind::all_to_all, Among::expert_parallel, "combine_backward.send", d_output,
                   "d_received_rows", shape_.received * shape_.hidden);
  const TensorId sorted = AddRows("d_unsorted_rows", shape_.hidden);
  b().AddPointwise(backward, "experts.scatter_backward", {received, rank_order_}, {sorted}, 0);
  return sorted;
}

TensorId TorchtitanExperts::ExpertsBackward(TensorId gradient) {
  auto& backward = b().backward();
  const TensorId d_down_in = AddRows("d_experts_down_in", width_);
  ProductBackward("experts_w2", w2_, down_in_, gradient, d_down_in);
  const TensorId d_w1_out = AddRows("d_experts_w1_out", width_), d_w3_out = AddRows("d_experts_w3_out", width_);
  TensorId d_silu;
  if (IsFused()) {
    b().AddPointwise(backward, "experts_fused_glu.backward", {w1_out_, w3_out_, d_down_in}, {d_w1_out, d_w3_out}, 9);
  } else {
    d_silu = AddRows("d_experts_silu", width_);
    b().AddPointwise(backward, "experts_product.backward", {d_down_in, silu_, w3_out_}, {d_silu, d_w3_out}, 2);
  }
  const TensorId d_rows = AddRows("d_expert_rows", shape_.hidden);
  ProductBackward("experts_w3", w3_, rows_.tokens, d_w3_out, d_rows);
  if (!IsFused()) {
    b().AddPointwise(backward, "experts_silu.backward", {d_silu, w1_out_}, {d_w1_out}, 6);
  }
  const TensorId d_w1_rows = AddRows("d_w1_rows", shape_.hidden);
  ProductBackward("experts_w1", w1_, rows_.tokens, d_w1_out, d_w1_rows);
  AddTo(d_rows, d_w1_rows, "experts.sum_input_gradient");
  return d_rows;
}

/// What autograd has saved for a product is there until both gradients are.
void TorchtitanExperts::ProductBackward(const std::string& name, ParameterId weight, TensorId input, TensorId gradient,
                                        TensorId to) {
  auto& backward = b().backward();
  const std::int64_t out = b().tensor(gradient).elements / shape_.rows, in = b().tensor(to).elements / shape_.rows;
  if (b().trainable(weight)) {
    b().Add(backward, name + ".weight_gradient", shape_.WeightGradient(parts_, out, in),
            {input, gradient, rows_.counts}, {})
        .gradients = {weight};
  }
  b().Add(backward, name + ".input_gradient", shape_.Product(parts_, in, out), {gradient, rows_.counts}, {to})
      .parameters = {weight};
  if (b().trainable(weight)) {
    backward.emplace_back(Hold{name + ".saved", {input}, {}});
  }
}

TensorId TorchtitanExperts::RouteBackward(TensorId d_weights) {
  auto& backward = b().backward();
  const TensorId d_logits = AddWide("d_router_logits", shape_.tokens * shape_.experts);
  b().AddPointwise(backward, "route.backward", {d_weights, chosen_scores_, chosen_, scores_}, {d_logits}, 8);
  if (b().trainable(gate_weight_)) {
    b().Add(backward, "router.weight_gradient", parts_.MakeGemm(shape_.experts, shape_.hidden, shape_.tokens),
            {gate_in_, d_logits}, {})
        .gradients = {gate_weight_};
  }
  const TensorId d_input = parts_.AddResidual("d_router_in");
  const TensorId wide = AddWide("d_gate_in", shape_.tokens * shape_.hidden);
  b().Add(backward, "router.input_gradient", parts_.MakeGemm(shape_.tokens, shape_.hidden, shape_.experts),
          {d_logits, gate_weight_wide_}, {wide});
  b().AddPointwise(backward, "router.narrow", {wide}, {d_input}, 0);
  return d_input;
}

}  // namespace tidemark
