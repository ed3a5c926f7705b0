// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/rope.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::decoder_test {
namespace {

/// A decoder of one layer, by hand from the kernels: embedding, norm, attention, gated units, norm, head and loss. Two
/// sequences of five tokens, four query heads on two key heads.
class TinyDecoder {
 public:
  explicit TinyDecoder(DType dtype) : dtype_(dtype) {
    const std::map<std::string, std::int64_t> sizes = {{"embedding", kVocabulary * kHidden},
                                                       {"norm1", kHidden},
                                                       {"qkv", kQkv * kHidden},
                                                       {"wo", kHidden * kHidden},
                                                       {"norm2", kHidden},
                                                       {"gate_up", 2 * kFfn * kHidden},
                                                       {"down", kHidden * kFfn},
                                                       {"norm", kHidden},
                                                       {"head", kVocabulary * kHidden}};
    unsigned seed = 0;
    for (const auto& [name, elements] : sizes) {
      weights[name] = Numbers::Random({dtype, elements}, ++seed);
      gradients[name] = Numbers(TensorType{dtype, elements});
      if (elements == kHidden) {  // norms: about 1
        const Numbers ones(dtype, std::vector<double>(kHidden, 1));
        Accumulate(ones, weights[name]);
      }
    }
  }

  double Forward() {
    EmbeddingForward(embedding_, ids_, weights["embedding"], New("x", kHidden));
    NormForward(norm_, t["x"], weights["norm1"], std::nullopt, New("n1", kHidden), Statistic("rstd1"), std::nullopt);
    Apply(kHidden, kQkv, "n1", "qkv", {New("q", kHidden), New("k", kKeys), New("v", kKeys)});
    RopeForward(rope_, t["q"], t["k"], {}, t["q"], t["k"]);
    t["lse"] = Numbers(AttentionOutputs(attention_, dtype_).lse);
    AttentionForward(attention_, t["q"], t["k"], t["v"], New("attention", kHidden), t["lse"]);
    Apply(kHidden, kHidden, "attention", "wo", {New("wo_out", kHidden)});
    Sum("x", "wo_out", New("middle", kHidden));
    NormForward(norm_, t["middle"], weights["norm2"], std::nullopt, New("n2", kHidden), Statistic("rstd2"),
                std::nullopt);
    Apply(kHidden, 2 * kFfn, "n2", "gate_up", {New("gate_up", 2 * kFfn)});
    GluForward(glu_, t["gate_up"], t["gate_up"], New("down_in", kFfn));
    Apply(kFfn, kHidden, "down_in", "down", {New("down_out", kHidden)});
    Sum("middle", "down_out", New("output", kHidden));
    NormForward(norm_, t["output"], weights["norm"], std::nullopt, New("n3", kHidden), Statistic("rstd3"),
                std::nullopt);
    Apply(kHidden, kVocabulary, "n3", "head", {New("logits", kVocabulary)});
    return Loss();
  }

  void Backward() {
    NllBackward(loss_, labels_, New("d_log_softmax", kVocabulary));
    LogSoftmaxBackward(loss_, t["d_log_softmax"], t["log_softmax"], New("d_logits", kVocabulary));
    Undo(kHidden, kVocabulary, "n3", "head", {t["d_logits"]}, New("d_n3", kHidden));
    NormUndo("d_n3", "output", "rstd3", "norm", "d_output");
    Undo(kFfn, kHidden, "down_in", "down", {t["d_output"]}, New("d_down_in", kFfn));
    const Tensor d_gate_up = New("d_gate_up", 2 * kFfn);
    GluBackward(glu_, t["gate_up"], t["gate_up"], t["d_down_in"], d_gate_up, d_gate_up);
    Undo(kHidden, 2 * kFfn, "n2", "gate_up", {d_gate_up}, New("d_n2", kHidden));
    NormUndo("d_n2", "middle", "rstd2", "norm2", "d_middle");
    Sum("d_middle", "d_output", t["d_middle"]);
    Undo(kHidden, kHidden, "attention", "wo", {t["d_middle"]}, New("d_attention", kHidden));
    AttentionUndo();
    Undo(kHidden, kQkv, "n1", "qkv", {t["dq"], t["dk"], t["dv"]}, New("d_n1", kHidden));
    NormUndo("d_n1", "x", "rstd1", "norm1", "d_x");
    Sum("d_x", "d_middle", t["d_x"]);
    EmbeddingBackward(embedding_, ids_, t["d_x"], gradients["embedding"]);
  }

  std::map<std::string, Numbers> weights, gradients, t;  ///< t: activations and their gradients

 private:
  static constexpr std::int64_t kBatch = 2, kSequence = 5, kHidden = 8, kKeys = 4, kFfn = 6, kVocabulary = 7;
  static constexpr std::int64_t kTokens = kBatch * kSequence, kQkv = kHidden + 2 * kKeys;
  static constexpr HeadShape kShape{.batch = kBatch, .sequence = kSequence, .heads = 4, .kv_heads = 2, .head_size = 2};

  Tensor New(const std::string& name, std::int64_t width) {
    return t[name] = Numbers(TensorType{dtype_, kTokens * width});
  }
  Tensor Statistic(const std::string& name) { return t[name] = Numbers(TensorType{StatisticsOf(dtype_), kTokens}); }
  void Apply(std::int64_t in, std::int64_t out, const std::string& input, const std::string& weight,
             const std::vector<Tensor>& outputs) {
    LinearForward({kTokens, in, out}, t[input], weights[weight], std::nullopt, outputs);
  }
  void Undo(std::int64_t in, std::int64_t out, const std::string& input, const std::string& weight,
            const std::vector<ConstTensor>& output_gradients, const Tensor& input_gradient) {
    LinearWeightGradient({kTokens, in, out}, t[input], output_gradients, gradients[weight]);
    LinearInputGradient({kTokens, in, out}, output_gradients, weights[weight], input_gradient);
  }
  void NormUndo(const std::string& gradient, const std::string& input, const std::string& rstd,
                const std::string& weight, const std::string& input_gradient) {
    NormBackward(norm_, t[gradient], t[input], t[rstd], std::nullopt, weights[weight], New(input_gradient, kHidden),
                 Tensor(gradients[weight]), std::nullopt);
  }
  void Sum(const std::string& a, const std::string& b, const Tensor& sum) {
    const ConstTensor addends[] = {t[a], t[b]};
    Add(addends, sum);
  }
  double Loss() {
    Numbers target(CrossEntropyRows(loss_, dtype_)), loss(CrossEntropyLoss(dtype_));
    RowMax(loss_, t["logits"], Statistic("row_max"));
    RowSumOfExponentials(loss_, t["logits"], t["row_max"], Statistic("row_sum"));
    LogSoftmax(loss_, t["logits"], t["row_max"], t["row_sum"], New("log_softmax", kVocabulary));
    NllForward(loss_, labels_, t["log_softmax"], target);
    NllMean(loss_, target, loss);
    return loss[0];
  }
  void AttentionUndo() {
    const AttentionGradientTypes types = AttentionGradients(attention_, dtype_);
    t["dq"] = Numbers(types.dq);
    t["dk"] = Numbers(types.dk);
    t["dv"] = Numbers(types.dv);
    Numbers accumulator(types.dq_accumulator), delta(types.delta);
    AttentionBackward(attention_, t["q"], t["k"], t["v"], t["attention"], t["lse"], t["d_attention"], t["dq"], t["dk"],
                      t["dv"], accumulator, delta);
    RopeBackward(rope_, t["dq"], t["dk"], {}, t["dq"], t["dk"]);
  }

  DType dtype_;
  Numbers ids_ = Numbers::Integers({0, 3, 1, 6, 3, 5, 5, 2, 0, 1});
  Numbers labels_ = Numbers::Integers({3, 1, 6, 3, 4, 5, 2, 0, 1, 2});
  Embedding embedding_{.tokens = kTokens, .width = kHidden, .vocabulary = kVocabulary};
  Norm norm_{.rows = kTokens, .width = kHidden};
  Rope rope_{.shape = kShape};
  Attention attention_{.shape = kShape};
  Glu glu_{.rows = kTokens, .width = kFfn};
  CrossEntropy loss_{.rows = kTokens, .columns = kVocabulary};
};

TEST(Decoder, GradientsOfAllWeightsAreThoseOfFiniteDifferences) {
  TinyDecoder decoder(DType::fp64);
  decoder.Forward();
  decoder.Backward();
  for (auto& [name, weight] : decoder.weights) {
    SCOPED_TRACE(name);
    const Numbers gradient = decoder.gradients.at(name);
    ExpectGradient([&] { return decoder.Forward(); }, weight, gradient);
  }
}

TEST(Decoder, ForwardDoneAgainGivesTheSameBits) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    TinyDecoder decoder(dtype), again(dtype);
    decoder.Forward();
    decoder.Backward();
    again.Forward();
    again.Forward();
    again.Backward();
    for (const auto& [name, gradient] : decoder.gradients) {
      EXPECT_EQ(gradient.bytes(), again.gradients.at(name).bytes()) << name;
    }
  }
}

TEST(Decoder, LearnsItsLabels) {
  TinyDecoder decoder(DType::fp32);
  std::map<std::string, std::pair<Numbers, Numbers>> moments;
  const double before = decoder.Forward();
  for (std::int64_t step = 1; step <= 60; ++step) {
    decoder.Forward();
    decoder.Backward();
    for (auto& [name, weight] : decoder.weights) {
      auto& [first, second] = moments[name];
      if (step == 1) {
        first = second = Numbers(weight.type());
        Zero(first);
        Zero(second);
      }
      AdamWUpdate({.lr = 0.05, .step = step}, decoder.gradients.at(name), weight, first, second);
    }
  }
  // A token is followed by two different ones where its sequence differs, so attention must tell them apart.
  EXPECT_LT(decoder.Forward(), before / 10);
}

TEST(Decoder, Bf16GradientsPointWhereThoseOfFp64Do) {
  TinyDecoder narrow(DType::bf16), wide(DType::fp64);
  for (auto& [name, weight] : wide.weights) {
    weight = narrow.weights.at(name).As(DType::fp64);
  }
  // About 20 roundings of 2^-8 lie one behind the other between the loss and the first weight.
  EXPECT_NEAR(narrow.Forward(), wide.Forward(), 20 * 0x1p-8);
  narrow.Backward();
  wide.Backward();
  for (const auto& [name, gradient] : wide.gradients) {
    const Numbers& rounded = narrow.gradients.at(name);
    const double cosine = Dot(gradient, rounded) / std::sqrt(Dot(gradient, gradient) * Dot(rounded, rounded));
    EXPECT_GT(cosine, 1 - 20 * 0x1p-8) << name;
  }
}

}  // namespace
}  // namespace tidemark::kernels::decoder_test
