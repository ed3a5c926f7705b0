// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/network/decoder_parts.h"
#include "models/network/eager_attention.h"
#include "models/network/expert_layer.h"
#include "models/network/feed_forward.h"
#include "models/network/latent_projections.h"
#include "models/network/ring_attention.h"
#include "models/network/rotary_angles.h"

namespace tidemark {
namespace {

/// One decoder layer. What is saved for the backward pass is what its actions read; the sums this leads to are known
/// (Korthikanti et al., 2022, and for fused GLU and grouped queries n/t (12h + 4hk/a + 6f + 8 + 4a) bytes in bf16
/// with sequence parallelism), and are tests.
class LayerTable {
 public:
  LayerTable(const std::string& name, const Decoder& decoder, std::span<const std::string> trainable,
             const Partition& partition)
      : parts_(name, decoder, trainable, partition),
        eager_(parts_),
        ring_(parts_),
        angles_(parts_),
        latent_(parts_, angles_),
        feed_forward_(parts_, "", decoder.ffn) {
    if (decoder.experts.count > 0) {
      experts_ = MakeExpertLayer(parts_);
    }
  }

  Block Build() && {
    Block& block = b().block();
    block.input = parts_.AddResidual(decoder().NormalisesInputs() ? "norm1_in" : "attention_in");
    block.output_gradient = parts_.AddResidual("d_output");
    const bool parallel = parts_.decoder().parallel_residual;
    Forward(parallel);
    Backward(parallel);
    return std::move(b()).Take();
  }

 private:
  BlockBuilder& b() { return parts_.builder(); }
  const Decoder& decoder() const { return parts_.decoder(); }
  const LocalShape& shape() const { return parts_.shape(); }

  void Forward(bool parallel) {
    Block& block = b().block();
    const TensorId attention = AttentionForward(block.input);
    TensorId middle = block.input;
    if (!parallel) {
      middle = parts_.AddResidual(decoder().NormalisesInputs() ? "norm2_in" : "ffn_in");
      b().AddPointwise(b().forward(), "residual1.forward", {block.input, attention}, {middle});
    }
    const TensorId ffn = FfnForward(middle);
    block.output = parts_.AddResidual("output");
    std::vector<TensorId> addends = {middle, ffn};
    if (parallel) {
      addends.push_back(attention);
    }
    b().AddPointwise(b().forward(), "residual2.forward", std::move(addends), {block.output});
  }

  // A residual addition hands its gradient to both branches. The gradient that comes back through the norm is a new
  // tensor, to which the other branch's is added in place, as autograd accumulates. (Without a norm of inputs autograd
  // adds what comes back through each linear layer to the other branch's gradient, which came first; here the linear
  // layers' are added up before, so that there is a tensor more while the last ones run.)
  void Backward(bool parallel) {
    Block& block = b().block();
    const TensorId middle = FfnBackward(block.output_gradient, parallel ? "d_norm2_in" : "d_middle");
    b().AddPointwise(b().backward(), "residual2.backward", {middle, block.output_gradient}, {middle});
    block.input_gradient = AttentionBackward(parallel ? block.output_gradient : middle, "d_norm1_in");
    b().AddPointwise(b().backward(), "residual1.backward", {block.input_gradient, middle}, {block.input_gradient});
  }

  std::size_t Done() { return b().forward().size(); }
  /// What has been added since `begin` may be done again by itself, but for the last `without` actions.
  void EndPart(LayerPart::Kind kind, std::size_t begin, std::size_t without = 0) {
    b().block().parts.push_back({kind, begin, Done() - without});
  }

  /// What linear layers read: a norm of the residual stream, or that itself.
  ColumnPart ReadStream(const std::string& norm_name, TensorId input, const std::string& input_name) {
    if (!decoder().NormalisesInputs()) {
      return parts_.ColumnOverResidual(input, "d_" + b().tensor(input).name, input_name);
    }
    const std::size_t begin = Done();
    ColumnPart part = parts_.ColumnInput(norm_name, shape().hidden, input, input_name);
    EndPart(LayerPart::Kind::norm, begin, shape().scattered ? 1 : 0);
    return part;
  }

  TensorId UndoInputNorm(const NormPart& norm, TensorId gradient, std::string input_gradient_name) {
    return decoder().NormalisesInputs() ? parts_.NormBackward(norm, gradient, std::move(input_gradient_name))
                                        : gradient;
  }

  /// Of what attention or the feed-forward part made.
  TensorId NormOutput(const std::string& name, TensorId output, NormPart& norm) {
    if (!decoder().NormalisesOutputs()) {
      return output;
    }
    norm = parts_.NormForward("norm_" + name, output, name + "_normed");
    return norm.output;
  }

  TensorId UndoOutputNorm(const std::string& name, const NormPart& norm, TensorId gradient) {
    return decoder().NormalisesOutputs() ? parts_.NormBackward(norm, gradient, "d_norm_" + name + "_in") : gradient;
  }

  TensorId AttentionForward(TensorId input) {
    const std::int64_t tokens = shape().tokens;
    if (decoder().IsLatent()) {
      MakeLatentQkv(input);
    } else {
      qkv_ = ReadStream("norm1", input, "qkv_in");
      MakeQkv();
    }
    attention_out_ = b().AddTensor("attn_out", tokens * shape().output_width());
    const std::size_t begin = Done();
    if (InRing()) {
      ring_.Forward(MakeAttention(false), q_, k_, v_, attention_out_);
    } else if (IsFlash()) {
      lse_ = b().AddTensor("lse", tokens * shape().heads, Category::activation, DType::fp32);
      b().Add(b().forward(), "attention.forward", MakeAttention(false), Qkv(), {attention_out_, lse_});
    } else {
      eager_.Forward(q_, k_, v_, attention_out_);
    }
    EndPart(LayerPart::Kind::attention, begin);
    const TensorId output = parts_.RowForward(wo_, "wo", attention_out_, shape().output_width(),
                                              decoder().heads * decoder().value_head_size(), decoder().linear_bias);
    return parts_.DropoutForward("wo", NormOutput("attention", output, attention_norm_), attention_mask_);
  }

  bool InRing() const { return parts_.partition().cp > 1; }
  bool IsFlash() const { return decoder().attention_kernel == Decoder::AttentionKernel::flash; }

  void MakeLatentQkv(TensorId input) {
    const std::size_t begin = Done();
    qkv_.norm = parts_.NormForward("norm1", input, "latent_in");
    EndPart(LayerPart::Kind::norm, begin);
    const auto [q, k, v] = latent_.Forward(qkv_.norm);
    q_ = q, k_ = k, v_ = v;
  }

  /// Projects, normalises and rotates. Where v is a view, it keeps the whole block that the packed projection wrote;
  /// rotation makes new tensors of q and k, which are views as well where nothing rotates them. (A ring takes tensors
  /// of their own.) Elsewhere fused rotation turns both where they are; the other turns each into a new tensor, as soon
  /// as its projection has run.
  void MakeQkv() {
    const std::int64_t queries = Queries(), keys = Keys();
    const bool views = decoder().qkv_views && parts_.partition().packed_qkv && !InRing();
    if (views) {
      packed_ = q_ = k_ = v_ = b().AddTensor("qkv", queries + 2 * keys);
    }
    const std::string prefix = InRing() ? "ring_" : "";
    if (!views || decoder().rope) {
      q_ = b().AddTensor("q", queries);
      k_ = b().AddTensor(prefix + "k", keys);
    }
    if (!views) {
      v_ = b().AddTensor(prefix + "v", keys);
    }
    ProjectQkv();
    if (decoder().rope && !RotatesEach()) {
      const std::vector<TensorId> rotated = {q_, k_};
      angles_.Rotate(b().forward(), "rope.forward", queries + keys, false,
                     views ? std::vector<TensorId>{packed_} : rotated, rotated);
    }
  }

  bool RotatesEach() const { return decoder().rope && !parts_.partition().fused_rope && !packed_.valid(); }

  /// What becomes of queries or keys between their projection and attention: they are normalised, then rotated into
  /// another tensor, or one of the two.
  struct Turned {
    std::string name;
    std::int64_t heads = 0, elements = 0;
    TensorId projected, unrotated, output;
    NormPart norm;
  };

  bool Turns() const { return RotatesEach() || decoder().qk_norm; }

  Turned ToBeTurned(std::string name, std::int64_t heads, TensorId output) {
    Turned part{std::move(name), heads, shape().tokens * heads * shape().head_size, {}, {}, output, {}};
    part.projected = part.unrotated = b().AddTensor(part.name + "_projected", part.elements);
    if (decoder().qk_norm) {
      part.unrotated = RotatesEach() ? b().AddTensor(part.name + "_unrotated", part.elements) : output;
    }
    return part;
  }

  void Turn(Turned& part) {
    if (decoder().qk_norm) {
      part.norm = parts_.QkNormForward("norm_" + part.name, part.heads, part.projected, part.unrotated);
    }
    if (RotatesEach()) {
      angles_.Rotate(b().forward(), "rope." + part.name + ".forward", part.elements, false, {part.unrotated},
                     {part.output});
    }
  }

  TensorId TurnBack(const Turned& part, TensorId gradient) {
    const std::string projected = "d_" + part.name + "_projected";
    if (RotatesEach()) {
      const std::string to = decoder().qk_norm ? "d_" + part.name + "_unrotated" : projected;
      const TensorId turned = b().AddTensor(to, part.elements);
      angles_.Rotate(b().backward(), "rope." + part.name + ".backward", part.elements, true, {gradient}, {turned});
      gradient = turned;
    }
    return decoder().qk_norm ? parts_.NormBackward(part.norm, gradient, projected) : gradient;
  }

  std::int64_t Queries() const { return shape().tokens * shape().query_width(); }
  std::int64_t Keys() const { return shape().tokens * shape().key_width(); }

  /// What attention reads: three tensors, or one where all are views of it.
  std::vector<TensorId> Qkv() const { return q_ == v_ ? std::vector<TensorId>{q_} : std::vector<TensorId>{q_, k_, v_}; }

  void ProjectQkv() {
    const std::int64_t q = shape().query_width();
    const std::int64_t kv = shape().key_width();
    const std::int64_t full_q = decoder().heads * decoder().head_size;
    const std::int64_t full_kv = decoder().kv_heads * decoder().head_size;
    std::vector<Turned> queries, keys;
    if (Turns()) {
      queries = {ToBeTurned("q", shape().heads, q_)};
      keys = {ToBeTurned("k", shape().kv_heads, k_)};
    }
    if (parts_.partition().packed_qkv) {
      const std::vector<TensorId> whole = packed_.valid() ? std::vector<TensorId>{packed_} : std::vector{q_, k_, v_};
      queries.insert(queries.end(), keys.begin(), keys.end());
      return Project("qkv", q + 2 * kv, full_q + 2 * full_kv, whole, std::move(queries));
    }
    Project("wq", q, full_q, {q_}, std::move(queries));
    Project("wk", kv, full_kv, {k_}, std::move(keys));
    Project("wv", kv, full_kv, {v_}, {});
  }

  /// A linear layer for `outputs`, of which the first ones are `turned` after it. Autograd turns their gradients back
  /// in the opposite order.
  void Project(const std::string& name, std::int64_t width, std::int64_t full_width, std::vector<TensorId> outputs,
               std::vector<Turned> turned) {
    LinearPart linear = parts_.AddColumnLinear(name, shape().hidden, width, full_width, decoder().qkv_bias);
    linear.outputs = std::move(outputs);
    for (std::size_t i = 0; i < turned.size(); ++i) {
      linear.outputs[i] = turned[i].projected;
    }
    parts_.ColumnForward(qkv_, std::move(linear));
    if (turned.empty()) {
      return;
    }
    for (Turned& part : turned) {
      Turn(part);
    }
    qkv_.linears.back().turn_back = [this, turned = std::move(turned)](std::vector<TensorId> gradients) {
      for (std::size_t i = turned.size(); i-- > 0;) {
        gradients[i] = TurnBack(turned[i], gradients[i]);
      }
      return gradients;
    };
  }

  TensorId AttentionBackward(TensorId output_gradient, std::string input_gradient_name) {
    const std::int64_t tokens = shape().tokens;
    const TensorId dropped = parts_.DropoutBackward("wo", output_gradient, attention_mask_);
    const TensorId d_out = parts_.RowBackward(wo_, UndoOutputNorm("attention", attention_norm_, dropped), "d_attn_out");
    const TensorId dq = b().AddTensor("dq", tokens * shape().query_width());
    const TensorId dk = b().AddTensor("dk", tokens * shape().key_width());
    const TensorId dv = b().AddTensor("dv", tokens * shape().value_width());
    if (InRing()) {
      ring_.Backward(MakeAttention(true), d_out, dq, dk, dv);
    } else if (IsFlash()) {
      FlashBackward(d_out, {dq, dk, dv});
    } else {
      eager_.Backward(d_out, dq, dk, dv);
    }
    return UndoInputNorm(qkv_.norm, decoder().IsLatent() ? latent_.Backward(dq, dk, dv) : QkvBackward(dq, dk, dv),
                         std::move(input_gradient_name));
  }

  TensorId QkvBackward(TensorId dq, TensorId dk, TensorId dv) {
    if (decoder().rope && !RotatesEach()) {
      angles_.Rotate(b().backward(), "rope.backward", Queries() + Keys(), true, {dq, dk}, {dq, dk});
    }
    std::vector<std::vector<TensorId>> gradients = {{dq}, {dk}, {dv}};
    if (parts_.partition().packed_qkv) {
      gradients = {{dq, dk, dv}};
    }
    return parts_.ColumnBackward(qkv_, gradients);
  }

  // FlashAttention's backward keeps an fp32 accumulator of dq and the row sums of dout * out ("delta").
  void FlashBackward(TensorId d_out, std::vector<TensorId> writes) {
    const std::int64_t tokens = shape().tokens;
    writes.push_back(
        b().AddTensor("dq_accumulator", tokens * shape().query_width(), Category::activation, DType::fp32));
    writes.push_back(b().AddTensor("delta", tokens * shape().heads, Category::activation, DType::fp32));
    std::vector<TensorId> reads = Qkv();
    reads.insert(reads.end(), {attention_out_, lse_, d_out});
    b().Add(b().backward(), "attention.backward", MakeAttention(true), std::move(reads), std::move(writes));
  }

  /// The feed-forward network, or the experts in its place.
  TensorId FfnForward(TensorId input) {
    const TensorId output = experts_ ? experts_->Forward(input) : DenseForward(input);
    return parts_.DropoutForward("down", NormOutput("ffn", output, ffn_norm_), ffn_mask_);
  }

  TensorId DenseForward(TensorId input) {
    ColumnPart read = ReadStream("norm2", input, "gu_in");
    const std::size_t begin = Done() - (shape().scattered ? 1 : 0);  // with its gather
    const TensorId output = feed_forward_.Forward(std::move(read));
    b().block().parts.push_back(feed_forward_.activation());
    EndPart(LayerPart::Kind::feed_forward, begin);
    return output;
  }

  TensorId FfnBackward(TensorId output_gradient, std::string input_gradient_name) {
    const TensorId gradient =
        UndoOutputNorm("ffn", ffn_norm_, parts_.DropoutBackward("down", output_gradient, ffn_mask_));
    if (experts_) {
      return experts_->Backward(gradient, std::move(input_gradient_name));
    }
    return UndoInputNorm(feed_forward_.norm(), feed_forward_.Backward(gradient), std::move(input_gradient_name));
  }

  Attention MakeAttention(bool backward) const {
    Attention op;
    op.batch = shape().batch;
    op.heads = shape().heads;
    op.kv_heads = shape().kv_heads;
    op.sequence = shape().sequence;
    op.head_size = shape().head_size;
    op.value_head_size = decoder().latent.value_head_size;
    op.causal = decoder().causal;
    if (decoder().HidesOf(shape().sequence)) {
      op.window = decoder().sliding_window;
      op.full_layers = decoder().LayersWithoutWindow();
      op.windowed_layers = decoder().layers - op.full_layers;
    }
    op.backward = backward;
    op.dtype = parts_.partition().compute;
    return op;
  }

  DecoderParts parts_;
  EagerAttention eager_;
  RingAttention ring_;
  RotaryAngles angles_;
  LatentProjections latent_;
  FeedForward feed_forward_;
  std::unique_ptr<ExpertLayer> experts_;
  ColumnPart qkv_;
  RowPart wo_;
  NormPart attention_norm_, ffn_norm_;                 // of outputs
  TensorId attention_mask_, ffn_mask_;                 // of dropout
  TensorId packed_, q_, k_, v_, attention_out_, lse_;  // packed_: where q, k and v are views
};

}  // namespace

Block BuildLayer(const Decoder& decoder, std::span<const std::string> trainable, const Partition& partition,
                 const std::string& name) {
  return LayerTable(name, decoder, trainable, partition).Build();
}

}  // namespace tidemark
