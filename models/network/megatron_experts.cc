// SPDX-License-Identifier: Apache-2.0
#include "models/network/megatron_experts.h"

#include <utility>

namespace tidemark {

MegatronExperts::MegatronExperts(DecoderParts& parts)
    : parts_(parts),
      shape_(parts),
      width_(experts().ffn / shape_.etp),
      up_width_(IsGlu() ? 2 * width_ : width_),
      dispatcher_(MakeTokenDispatcher(parts, shape_)),
      shared_(parts, "shared_", experts().shared_ffn) {}

TensorId MegatronExperts::Forward(TensorId input) {
  auto& forward = b().forward();
  auto& parts = b().block().parts;
  parts.push_back({LayerPart::Kind::norm, forward.size(), 0});
  norm_ = parts_.NormForward("norm2", input, "experts_in");
  parts.back().end = forward.size();
  AddParameters();
  LayerPart whole{LayerPart::Kind::feed_forward, forward.size(), 0};
  TensorId shared;
  if (experts().shared_ffn > 0) {
    shared = SharedForward();
  }
  routed_ = Route();
  rows_ = dispatcher_->Dispatch(routed_);
  TensorId output = dispatcher_->Combine(RunExperts(rows_));
  if (shared.valid()) {
    const TensorId sum = parts_.AddResidual("experts_and_shared");
    b().AddPointwise(forward, "shared_experts.sum", {output, shared}, {sum});
    output = sum;
  }
  if (const std::vector<TensorId> held = dispatcher_->Held(); !held.empty()) {
    forward.emplace_back(Hold{"experts.return", held, {}});
  }
  whole.end = forward.size();
  parts.push_back(whole);
  return output;
}

/// In the order of MoELayer's and its shared experts' constructors; those of the linear layers of the latter come last.
void MegatronExperts::AddParameters() {
  router_ = parts_.AddReplicatedMatrix("router", shape_.experts, shape_.hidden);
  b().block().parameters[router_.index].added_by_hook = true;  // RouterGatingLinearFunction returns it (moe_utils.py)
  up_ = AddExperts("experts_up", up_width_, shape_.hidden);
  down_ = AddExperts("experts_down", shape_.hidden, width_);
  if (experts().shared_gate) {
    shared_gate_ = parts_.AddReplicatedMatrix("shared_gate", 1, shape_.hidden);
  }
}

// In the order of autograd: what ran last first, and what they hand back added up in place in the first.
TensorId MegatronExperts::Backward(TensorId output_gradient, std::string input_gradient_name) {
  const ExpertRows d_rows = ExpertsBackward(dispatcher_->CombineBackward(output_gradient));
  const RoutedTokens d_routed = dispatcher_->DispatchBackward(d_rows);
  AddTo(d_routed.tokens, RouteBackward(d_routed.weights), "router.sum_input_gradient");
  if (experts().shared_ffn > 0) {
    AddTo(d_routed.tokens, SharedBackward(output_gradient), "shared_experts.sum_input_gradient");
  }
  return parts_.NormBackward(norm_, d_routed.tokens, std::move(input_gradient_name));
}

void MegatronExperts::AddTo(TensorId sum, TensorId addend, const std::string& name) {
  b().AddPointwise(b().backward(), name, {sum, addend}, {sum});
}

RoutedTokens MegatronExperts::Route() {
  auto& forward = b().forward();
  const std::int64_t all = shape_.tokens * shape_.experts, chosen = shape_.sent;
  const TensorId logits = b().AddTensor("router_logits", all, Category::activation, shape_.weights);
  Gemm gemm = parts_.MakeGemm(shape_.tokens, shape_.experts, shape_.hidden);
  gemm.output = shape_.weights;
  b().Add(forward, "router.forward", gemm, {norm_.output}, {logits}).parameters = {router_};
  const RoutedTokens routed{norm_.output, b().AddTensor("routing_weights", all, Category::activation, shape_.weights),
                            b().AddTensor("routing_mask", all, Category::activation, DType::u8)};
  scores_ = b().AddTensor("routing_scores", chosen, Category::activation, DType::fp32);
  chosen_ = b().AddTensor("chosen_experts", chosen, Category::activation, DType::int64);
  std::vector<TensorId> writes = {routed.weights, routed.mask, scores_, chosen_};
  if (experts().balancing_loss) {
    balance_scores_ = writes.emplace_back(b().AddTensor("balancing_scores", all, Category::activation, DType::fp32));
  }
  b().AddPointwise(forward, "route.forward", {logits}, std::move(writes), 8);
  return routed;
}

TensorId MegatronExperts::RouteBackward(TensorId d_weights) {
  auto& backward = b().backward();
  std::vector<TensorId> reads = {d_weights, scores_, chosen_, routed_.weights, routed_.mask};
  if (balance_scores_.valid()) {
    reads.push_back(balance_scores_);
  }
  const TensorId d_logits =
      b().AddTensor("d_router_logits", shape_.tokens * shape_.experts, Category::activation, shape_.weights);
  b().AddPointwise(backward, "route.backward", std::move(reads), {d_logits}, 8);
  const TensorId d_input = parts_.AddResidual("d_router_in");
  // The product's result keeps its dtype until the weight's gradient is there, for which the input is cast.
  const bool wide = shape_.weights != b().compute();
  const auto add_wide = [&](const char* name) {
    return b().AddTensor(name, shape_.tokens * shape_.hidden, Category::activation, shape_.weights);
  };
  const TensorId product = wide ? add_wide("d_router_in_wide") : d_input;
  b().Add(backward, "router.input_gradient", parts_.MakeGemm(shape_.tokens, shape_.hidden, shape_.experts), {d_logits},
          {product})
      .parameters = {router_};
  if (b().trainable(router_)) {
    std::vector<TensorId> cast = wide ? std::vector<TensorId>{add_wide("router_in_wide")} : std::vector<TensorId>();
    b().Add(backward, "router.weight_gradient", parts_.MakeGemm(shape_.experts, shape_.hidden, shape_.tokens),
            {norm_.output, d_logits}, std::move(cast))
        .gradients = {router_};
  }
  if (wide) {
    b().AddPointwise(backward, "router.narrow", {product}, {d_input}, 0);
  }
  return d_input;
}

ParameterId MegatronExperts::AddExperts(const std::string& name, std::int64_t out, std::int64_t in) {
  const std::int64_t own = shape_.own_experts * out * in;
  return b().AddParameter({.name = name,
                           .elements = own,
                           .rows = shape_.own_experts * out,
                           .elements_full = own * shape_.Ranks(),
                           .experts = shape_.own_experts});
}

TensorId MegatronExperts::RunExperts(const ExpertRows& rows) {
  auto& forward = b().forward();
  up_out_ = AddRows("experts_up_out", up_width_);
  b().Add(forward, "experts_up.forward", shape_.Product(parts_, up_width_, shape_.hidden), {rows.tokens, rows.counts},
          {up_out_})
      .parameters = {up_};
  LayerPart activation{LayerPart::Kind::activation, forward.size(), 0};
  Activate(rows.weights);
  activation.end = forward.size();
  b().block().parts.push_back(activation);
  const TensorId output = AddRows("experts_out", shape_.hidden);
  b().Add(forward, "experts_down.forward", shape_.Product(parts_, shape_.hidden, width_), {down_in_, rows.counts},
          {output})
      .parameters = {down_};
  if (!Joins()) {
    return output;
  }
  const TensorId joined = AddRows("experts_joined", shape_.hidden);
  b().AddPointwise(forward, "experts.join", {output}, {joined}, 0);
  return joined;
}

/// Fused: one kernel for activation and weights. Else the activation by itself, and a product in the wider dtype.
void MegatronExperts::Activate(TensorId weights) {
  auto& forward = b().forward();
  down_in_ = AddRows("experts_down_in", width_);
  if (IsFused()) {
    b().AddPointwise(forward, "experts_glu.forward", {up_out_, weights}, {down_in_}, 6);
    return;
  }
  activated_ = AddRows("experts_activated", width_);
  std::vector<TensorId> writes = {activated_};
  if (IsGlu()) {
    silu_ = writes.emplace_back(AddRows("experts_silu", width_));
  }
  b().AddPointwise(forward, "experts_activation.forward", {up_out_}, std::move(writes), 8);
  std::vector<TensorId> products = {down_in_};
  if (shape_.weights != b().compute()) {
    products.push_back(
        b().AddTensor("experts_weighted_wide", shape_.rows * width_, Category::activation, shape_.weights));
  }
  b().AddPointwise(forward, "experts_weights.forward", {activated_, weights}, std::move(products));
}

ExpertRows MegatronExperts::ExpertsBackward(TensorId gradient) {
  const TensorId d_down_in = AddRows("d_experts_down_in", width_);
  ProductBackward("experts_down", down_, down_in_, gradient, d_down_in);
  const TensorId d_weights = b().AddTensor("d_row_weights", shape_.rows, Category::activation, shape_.weights);
  const TensorId d_up_out = ActivationBackward(d_down_in, d_weights);
  TensorId d_rows = AddRows("d_expert_rows", shape_.hidden);
  ProductBackward("experts_up", up_, rows_.tokens, d_up_out, d_rows);
  if (Joins()) {
    const TensorId joined = AddRows("d_expert_rows_joined", shape_.hidden);
    b().AddPointwise(b().backward(), "experts.join_backward", {d_rows}, {joined}, 0);
    d_rows = joined;
  }
  return {d_rows, d_weights, {}};
}

void MegatronExperts::ProductBackward(const std::string& name, ParameterId weight, TensorId input, TensorId gradient,
                                      TensorId to) {
  const bool weight_first = parts_.partition().linear_order == Partition::LinearOrder::weight_gradient_first;
  const std::int64_t out = b().tensor(gradient).elements / shape_.rows, in = b().tensor(to).elements / shape_.rows;
  if (weight_first) {
    WeightGradient(name, weight, input, gradient);
  }
  b().Add(b().backward(), name + ".input_gradient", shape_.Product(parts_, in, out), {gradient, rows_.counts}, {to})
      .parameters = {weight};
  if (!weight_first) {
    WeightGradient(name, weight, input, gradient);
  }
}

void MegatronExperts::WeightGradient(const std::string& name, ParameterId weight, TensorId input, TensorId gradient) {
  if (!b().trainable(weight)) {
    return;
  }
  const std::int64_t out = b().tensor(gradient).elements / shape_.rows, in = b().tensor(input).elements / shape_.rows;
  const Gemm gemm = shape_.WeightGradient(parts_, out, in);
  b().Add(b().backward(), name + ".weight_gradient", gemm, {input, gradient, rows_.counts}, {}).gradients = {weight};
}

/// Products with weights are made in the wider dtype and cast; the weights' gradients are sums over one of [rows, f].
TensorId MegatronExperts::ActivationBackward(TensorId d_down_in, TensorId d_weights) {
  auto& backward = b().backward();
  const TensorId d_up_out = AddRows("d_experts_up_out", up_width_);
  if (IsFused()) {
    b().AddPointwise(backward, "experts_glu.backward", {up_out_, rows_.weights, d_down_in}, {d_up_out, d_weights}, 10);
    return d_up_out;
  }
  const TensorId d_activated = AddRows("d_experts_activated", width_);
  std::vector<TensorId> writes = {d_activated, d_weights};
  const auto wide = [&](const char* name) {
    writes.push_back(b().AddTensor(name, shape_.rows * width_, Category::activation, shape_.weights));
  };
  if (shape_.weights != b().compute()) {
    wide("d_experts_weighted_wide");
    wide("d_experts_activated_wide");
  }
  wide("d_row_weights_products");
  b().AddPointwise(backward, "experts_weights.backward", {activated_, rows_.weights, d_down_in}, std::move(writes), 3);
  if (!IsGlu()) {
    b().AddPointwise(backward, "experts_activation.backward",
                     {parts_.decoder().relu ? activated_ : up_out_, d_activated}, {d_up_out},
                     parts_.decoder().relu ? 1 : 12);
    return d_up_out;
  }
  // Halves of one tensor, whose gradients are joined (torch.chunk).
  const std::vector<TensorId> outputs = {d_up_out, AddRows("d_experts_silu", width_), AddRows("d_experts_gate", width_),
                                         AddRows("d_experts_linear", width_)};
  b().AddPointwise(backward, "experts_activation.backward", {up_out_, silu_, d_activated}, outputs, 9);
  return d_up_out;
}

TensorId MegatronExperts::SharedForward() {
  const TensorId output = shared_.Forward(parts_.ColumnOver(norm_, "shared_in"));
  if (!experts().shared_gate) {
    return output;
  }
  shared_out_ = output;
  gate_ = b().AddTensor("shared_gate_out", shape_.tokens);
  const TensorId gated = parts_.AddResidual("shared_gated");
  b().AddPointwise(b().forward(), "shared_gate.forward", {norm_.output, output}, {gated, gate_}, 3).parameters = {
      shared_gate_};
  return gated;
}

TensorId MegatronExperts::SharedBackward(TensorId gradient) {
  if (!experts().shared_gate) {
    return shared_.Backward(gradient);
  }
  auto& backward = b().backward();
  const TensorId d_output = parts_.AddResidual("d_shared_out");
  const TensorId d_input = parts_.AddResidual("d_shared_gate_in");
  Calculate& gate = b().AddPointwise(backward, "shared_gate.backward", {gradient, norm_.output, shared_out_, gate_},
                                     {d_output, d_input, parts_.AddResidual("d_shared_gate_products"),
                                      b().AddTensor("d_shared_gate_out", shape_.tokens)},
                                     6);
  gate.parameters = {shared_gate_};
  if (b().trainable(shared_gate_)) {
    gate.gradients = {shared_gate_};
  }
  AddTo(d_input, shared_.Backward(d_output), "shared_gate.sum_input_gradient");
  return d_input;
}

}  // namespace tidemark
