// SPDX-License-Identifier: Apache-2.0
#include "models/network/eager_attention.h"

#include <utility>

namespace tidemark {

TensorId EagerAttention::AddScores(std::string name, DType dtype) {
  const LocalShape& shape = parts_.shape();
  return b().AddTensor(std::move(name), shape.batch * shape.heads * shape.sequence * shape.sequence,
                       Category::activation, dtype);
}

TensorId EagerAttention::AddRow(std::string name) {
  return b().AddTensor(std::move(name), parts_.shape().tokens * parts_.shape().query_width());
}

TensorId EagerAttention::Repeat(TensorId heads, const std::string& name) {
  if (repeats() == 1) {
    return heads;
  }
  const TensorId repeated = AddRow(name + "_repeated");
  b().AddPointwise(b().forward(), name + ".repeat", {heads}, {repeated}, 0);
  return repeated;
}

void EagerAttention::SumRepeats(TensorId repeated, TensorId heads, const std::string& name) {
  b().AddPointwise(b().backward(), name + ".sum_repeats", {repeated}, {heads}, repeats());
}

void EagerAttention::Product(std::vector<Action>& pass, const std::string& name, std::vector<TensorId> reads,
                             TensorId to, bool to_scores) {
  const LocalShape& shape = parts_.shape();
  Gemm gemm;
  gemm.m = shape.sequence;
  gemm.n = to_scores ? shape.sequence : shape.head_size;
  gemm.k = to_scores ? shape.head_size : shape.sequence;
  gemm.batch = shape.batch * shape.heads;
  gemm.dtype = gemm.output = b().compute();
  b().Add(pass, "attention." + name, gemm, std::move(reads), {to});
}

TensorId EagerAttention::Scores() {
  const TensorId products = AddScores("scores", b().compute());
  Product(b().forward(), "scores", {q_, k_}, products, true);
  const TensorId divided = AddScores("scores_divided", b().compute());
  b().AddPointwise(b().forward(), "attention.divide", {products}, {divided});
  if (!parts_.decoder().causal) {
    return divided;
  }
  const TensorId masked = AddScores("scores_masked", b().compute());
  b().AddPointwise(b().forward(), "attention.mask", {divided}, {masked});
  return masked;
}

void EagerAttention::Probabilities(TensorId scores) {
  const bool narrow = SizeOf(b().compute()) < SizeOf(DType::fp32);
  const bool casts = narrow && parts_.decoder().attention_kernel == Decoder::AttentionKernel::eager_fp32_softmax;
  softmax_ = weights_ = AddScores("softmax", casts ? DType::fp32 : b().compute());
  b().AddPointwise(b().forward(), "attention.softmax", {scores}, {softmax_}, 5);
  if (casts) {
    weights_ = AddScores("probabilities", b().compute());
    b().AddPointwise(b().forward(), "attention.downcast", {softmax_}, {weights_}, 0);
  }
  if (parts_.decoder().attention_dropout > 0) {
    mask_ = AddScores("attention_mask", DType::u8);
    const TensorId dropped = AddScores("probabilities_dropped", b().compute());
    b().AddDropout(b().forward(), "attention.dropout", weights_, {dropped, mask_});
    weights_ = dropped;
  }
}

void EagerAttention::Forward(TensorId q, TensorId k, TensorId v, TensorId output) {
  q_ = q;
  k_ = Repeat(k, "k");
  v_ = Repeat(v, "v");
  Probabilities(Scores());
  const TensorId context = AddRow("context");
  Product(b().forward(), "context", {weights_, v_}, context, false);
  // From heads by tokens to tokens by heads: a copy, which is what the next linear keeps.
  b().AddPointwise(b().forward(), "attention.transpose", {context}, {output}, 0);
}

TensorId EagerAttention::ScoresBackward(TensorId d_weights) {
  TensorId gradient = d_weights;
  if (mask_.valid()) {
    gradient = AddScores("d_probabilities", b().compute());
    b().AddPointwise(b().backward(), "attention.dropout_backward", {d_weights, mask_}, {gradient}, 2);
  }
  if (b().tensor(softmax_).dtype != b().compute()) {
    const TensorId wide = AddScores("d_softmax", b().tensor(softmax_).dtype);
    b().AddPointwise(b().backward(), "attention.upcast", {gradient}, {wide}, 0);
    gradient = wide;
  }
  const TensorId d_scores = AddScores("d_scores_masked", b().compute());
  b().AddPointwise(b().backward(), "attention.softmax_backward", {gradient, softmax_}, {d_scores}, 4);
  const TensorId d_products = AddScores("d_scores", b().compute());
  b().AddPointwise(b().backward(), "attention.divide_backward", {d_scores}, {d_products});
  return d_products;
}

void EagerAttention::Backward(TensorId d_output, TensorId dq, TensorId dk, TensorId dv) {
  const bool repeated = repeats() > 1;
  const TensorId d_weights = AddScores("d_weights", b().compute());
  const TensorId dv_all = repeated ? AddRow("dv_repeated") : dv, dk_all = repeated ? AddRow("dk_repeated") : dk;
  Product(b().backward(), "weights_gradient", {d_output, v_}, d_weights, true);
  Product(b().backward(), "v_gradient", {weights_, d_output}, dv_all, false);
  const TensorId d_products = ScoresBackward(d_weights);
  Product(b().backward(), "q_gradient", {d_products, k_}, dq, false);
  Product(b().backward(), "k_gradient", {d_products, q_}, dk_all, false);
  if (repeated) {
    SumRepeats(dk_all, dk, "k");
    SumRepeats(dv_all, dv, "v");
  }
}

}  // namespace tidemark
