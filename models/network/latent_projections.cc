// SPDX-License-Identifier: Apache-2.0
#include "models/network/latent_projections.h"

#include <utility>

namespace tidemark {

LatentProjections::Qkv LatentProjections::Forward(const NormPart& norm) {
  norm_ = norm;
  ProjectLatents();
  heads_.begin = b().forward().size();
  ProjectQueries();
  kv_up_ = parts_.ColumnOver(kv_norm_, "kv_in");
  kv_ = b().AddTensor("kv", Projected());
  AddColumn(kv_up_, "wkv_b", OwnAndValue(), kv_);
  const Qkv made = MakeHeads();
  heads_.end = b().forward().size();
  return made;
}

void LatentProjections::ProjectLatents() {
  const std::int64_t hidden = parts_.shape().hidden;
  const bool has_query_rank = latent().q_lora_rank > 0;
  TensorId q_vector;
  if (has_query_rank) {
    q_vector = parts_.AddRows("q_latent", latent().q_lora_rank);
    q_down_ = parts_.ReplicatedForward("wq_a", norm_.output, hidden, {q_vector});
  }
  const TensorId kv_vector = parts_.AddRows("kv_latent", latent().kv_lora_rank);
  const TensorId shared = parts_.AddRows("k_shared", latent().rope_head_size);
  kv_down_ = parts_.ReplicatedForward("wkv_a", norm_.output, hidden, {kv_vector, shared});
  shared_ = parts_.GatherForward("k_shared", shared);
  q_norm_ = has_query_rank ? parts_.ColumnNorm("norm_q", latent().q_lora_rank, q_vector, "q_in") : norm_;
  kv_norm_ = parts_.ColumnNorm("norm_kv", latent().kv_lora_rank, kv_vector, "kv_in");
}

void LatentProjections::ProjectQueries() {
  q_projected_ = b().AddTensor(Fused() ? "q" : "q_projected", Queries());
  q_up_ = parts_.ColumnOver(q_norm_, "q_in");
  AddColumn(q_up_, latent().q_lora_rank > 0 ? "wq_b" : "wq", parts_.shape().head_size, q_projected_);
}

LatentProjections::Qkv LatentProjections::MakeHeads() {
  auto& forward = b().forward();
  Qkv made{q_projected_, b().AddTensor("k", parts_.shape().tokens * parts_.shape().key_width()), kv_};
  TensorId shared = shared_;
  if (!Fused()) {
    made.q = b().AddTensor("q", Queries());
    shared = b().AddTensor("k_shared_rotated", Shared());
    Rotate(forward, "rope.k.forward", shared_, shared);
  }
  Rotate(forward, "rope.q.forward", q_projected_, made.q);
  std::vector<TensorId> writes = {made.k};
  if (!ValuesAreView()) {
    made.v = b().AddTensor("v", parts_.shape().tokens * parts_.shape().value_width());
    writes.push_back(made.v);
  }
  b().AddPointwise(forward, "latent_heads.forward", {kv_, shared}, std::move(writes), Fused() ? 1 : 0);
  return made;
}

void LatentProjections::AddColumn(ColumnPart& column, const std::string& name, std::int64_t width_of_head,
                                  TensorId output) {
  LinearPart linear = parts_.AddColumnLinear(name, column.norm.shape.width, parts_.shape().heads * width_of_head,
                                             parts_.decoder().heads * width_of_head, false);
  linear.outputs = {output};
  parts_.ColumnForward(column, std::move(linear));
}

/// In place it touches only what it rotates; a new tensor gets the rest as well.
void LatentProjections::Rotate(std::vector<Action>& pass, const std::string& name, TensorId from, TensorId to) {
  const std::int64_t all = b().tensor(from).elements, heads = all == Shared() ? 1 : parts_.shape().heads;
  const Rope op{from == to ? heads * Shared() : all, &pass == &b().backward(), b().compute()};
  b().Add(pass, name, op, {from}, {to});
}

// In the order of autograd: keys and values last, so first.
TensorId LatentProjections::Backward(TensorId dq, TensorId dk, TensorId dv) {
  const TensorId sum = KeysBackward(dk, dv);
  b().AddPointwise(b().backward(), "wq.sum_input_gradient", {sum, QueriesBackward(dq)}, {sum});
  return sum;
}

TensorId LatentProjections::KeysBackward(TensorId dk, TensorId dv) {
  auto& backward = b().backward();
  const TensorId d_kv = b().AddTensor("d_kv", Projected());
  TensorId d_shared = b().AddTensor("d_k_shared", Shared());
  b().AddPointwise(backward, "latent_heads.backward", {dk, dv}, {d_kv, d_shared});
  if (!Fused()) {
    const TensorId rotated = std::exchange(d_shared, b().AddTensor("d_k_shared_unrotated", Shared()));
    Rotate(backward, "rope.k.backward", rotated, d_shared);
  }
  const TensorId d_own_rows = parts_.ReduceBackward("k_shared", d_shared);
  const TensorId d_normalised = parts_.ColumnBackward(kv_up_, {{d_kv}});
  const TensorId d_latent = parts_.NormBackward(kv_up_.norm, d_normalised, "d_kv_latent");
  return parts_.ReplicatedBackward(kv_down_, {d_latent, d_own_rows}, "d_kv_input");
}

TensorId LatentProjections::QueriesBackward(TensorId dq) {
  const TensorId projected = Fused() ? dq : b().AddTensor("d_q_projected", Queries());
  Rotate(b().backward(), "rope.q.backward", dq, projected);
  const TensorId d_input = parts_.ColumnBackward(q_up_, {{projected}});
  if (latent().q_lora_rank == 0) {
    return d_input;
  }
  const TensorId d_latent = parts_.NormBackward(q_up_.norm, d_input, "d_q_latent");
  return parts_.ReplicatedBackward(q_down_, {d_latent}, "d_q_input");
}

}  // namespace tidemark
