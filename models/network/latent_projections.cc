// SPDX-License-Identifier: Apache-2.0
#include "models/network/latent_projections.h"

#include <utility>

namespace tidemark {

LatentProjections::Qkv LatentProjections::Forward(const NormPart& norm) {
  norm_ = norm;
  Qkv made;
  made.q = MakeQueries();
  MakeKeys(made);
  return made;
}

TensorId LatentProjections::MakeQueries() {
  auto& forward = b().forward();
  const bool has_rank = latent().q_lora_rank > 0;
  TensorId vector;
  if (has_rank) {
    vector = parts_.AddRows("q_latent", latent().q_lora_rank);
    q_down_ = parts_.ReplicatedForward("wq_a", norm_.output, parts_.shape().hidden, {vector});
  }
  const std::size_t begin = forward.size();
  q_up_ =
      has_rank ? parts_.ColumnInput("norm_q", latent().q_lora_rank, vector, "q_in") : parts_.ColumnOver(norm_, "q_in");
  const TensorId projected = b().AddTensor(Fused() ? "q" : "q_projected", Queries());
  AddColumn(q_up_, has_rank ? "wq_b" : "wq", parts_.shape().head_size, projected);
  const TensorId rotated = Fused() ? projected : b().AddTensor("q", Queries());
  Rotate(forward, "rope.q.forward", false, projected, rotated);
  AddPart(begin);
  return rotated;
}

void LatentProjections::MakeKeys(Qkv& made) {
  auto& forward = b().forward();
  const TensorId vector = parts_.AddRows("kv_latent", latent().kv_lora_rank);
  const TensorId own_rows = parts_.AddRows("k_shared", latent().rope_head_size);
  kv_down_ = parts_.ReplicatedForward("wkv_a", norm_.output, parts_.shape().hidden, {vector, own_rows});
  TensorId shared = parts_.GatherForward("k_shared", own_rows);
  const std::size_t begin = forward.size();
  kv_up_ = parts_.ColumnInput("norm_kv", latent().kv_lora_rank, vector, "kv_in");
  const TensorId projected = b().AddTensor("kv", Projected());
  AddColumn(kv_up_, "wkv_b", OwnAndValue(), projected);
  if (!Fused()) {
    const TensorId unrotated = std::exchange(shared, b().AddTensor("k_shared_rotated", Shared()));
    Rotate(forward, "rope.k.forward", false, unrotated, shared);
  }
  made.k = b().AddTensor("k", parts_.shape().tokens * parts_.shape().key_width());
  made.v = projected;
  std::vector<TensorId> writes = {made.k};
  if (!ValuesAreView()) {
    made.v = writes.emplace_back(b().AddTensor("v", parts_.shape().tokens * parts_.shape().value_width()));
  }
  Calculate& join =
      b().AddPointwise(forward, "latent_heads.forward", {projected, shared}, std::move(writes), Fused() ? 1 : 0);
  if (Fused()) {
    angles_.ReadTable(join);
  }
  AddPart(begin);
}

void LatentProjections::AddPart(std::size_t begin) {
  b().block().parts.push_back({LayerPart::Kind::latent_heads, begin, b().forward().size()});
}

void LatentProjections::AddColumn(ColumnPart& column, const std::string& name, std::int64_t width_of_head,
                                  TensorId output) {
  LinearPart linear = parts_.AddColumnLinear(name, column.norm.shape.width, parts_.shape().heads * width_of_head,
                                             parts_.decoder().heads * width_of_head, false);
  linear.outputs = {output};
  parts_.ColumnForward(column, std::move(linear));
}

/// Where queries are it touches only what it rotates of them; a new tensor gets the rest as well.
void LatentProjections::Rotate(std::vector<Action>& pass, const std::string& name, bool backward, TensorId from,
                               TensorId to) {
  const std::int64_t all = b().tensor(from).elements;
  angles_.Rotate(pass, name, from == to ? parts_.shape().heads * Shared() : all, backward, {from}, {to});
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
  Calculate& split = b().AddPointwise(backward, "latent_heads.backward", {dk, dv}, {d_kv, d_shared});
  if (Fused()) {
    angles_.ReadTable(split);
  } else {
    const TensorId rotated = std::exchange(d_shared, b().AddTensor("d_k_shared_unrotated", Shared()));
    Rotate(backward, "rope.k.backward", true, rotated, d_shared);
  }
  const TensorId d_own_rows = parts_.ReduceBackward("k_shared", d_shared);
  const TensorId d_normalised = parts_.ColumnBackward(kv_up_, {{d_kv}});
  const TensorId d_latent = parts_.NormBackward(kv_up_.norm, d_normalised, "d_kv_latent");
  return parts_.ReplicatedBackward(kv_down_, {d_latent, d_own_rows}, "d_kv_input");
}

TensorId LatentProjections::QueriesBackward(TensorId dq) {
  const TensorId projected = Fused() ? dq : b().AddTensor("d_q_projected", Queries());
  Rotate(b().backward(), "rope.q.backward", true, dq, projected);
  const TensorId d_input = parts_.ColumnBackward(q_up_, {{projected}});
  if (latent().q_lora_rank == 0) {
    return d_input;
  }
  const TensorId d_latent = parts_.NormBackward(q_up_.norm, d_input, "d_q_latent");
  return parts_.ReplicatedBackward(q_down_, {d_latent}, "d_q_input");
}

}  // namespace tidemark
