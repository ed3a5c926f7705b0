// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/network/decoder_parts.h"
#include "models/network/expert_layer.h"
#include "models/network/feed_forward.h"
#include "models/network/token_dispatcher.h"

namespace tidemark {

/// Experts whose router tells where tokens go by a mask, and whose rows are weighted between their two products, as
/// Megatron-LM computes them (Experts::Layer::megatron).
///
/// Of T tokens that a rank has rows of, E experts, k of them a token, e expert-parallel and t expert-tensor-parallel
/// ranks, hidden size h and experts of width f, whose first product makes u (2f with a gated unit):
///
///   route      logits [T, E]; scores and numbers of the chosen experts [T, k]; weights, and a mask of them [T, E]
///   dispatch   rows in the order of the experts (token_dispatcher.h): R = T k t of them, or with an `imbalance` of i
///              i T k t on the fullest of several ranks
///   experts    [R, h] to [R, u / t] to [R, f / t] and back. The weight of a row is multiplied in before the second
///              product, so that what comes back need only be added up
///   combine    the dispatch the other way round, added up to [T, h]
///
/// Every row is one expert's, so a rank computes as much as with a dense network of width k f, and holds E / e experts.
/// Buffers are those of Megatron-LM core's moe/ at d98e8a64 (router.py, token_dispatcher.py, experts.py, and permute
/// and unpermute of moe_utils.py, not fused), in bf16:
///   saved      the norm's output [T, h]; the rows [R, h]; what the first product makes [R, u] and the second reads
///              [R, f], and where activation and weight are two kernels another [R, f]; of the router per token 12 k +
///              3 E bytes, and of the dispatcher 8 k + 8 E
///   forward    before and behind each product, message and sort the rows once more: [R, h]; those that are sent, that
///              come and that come back until the layer returns
/// `sequential` experts join their outputs, and in the backward pass their inputs' gradients: [R, h] more of each.
///
/// Left out: what routing computes on its way, all of it a few numbers per token and expert, and so more of them with
/// another score function than a softmax over those that are chosen; that fused permutation has smaller numbers of its
/// own; a copy of the weights that the dispatcher all_gather saves; the message with counts of tokens, and that the
/// host waits for it before it can launch the experts' products; that `sequential` experts are launched one by one, and
/// that their gradients on the way are those of one; that a gated activation in single operations saves a copy of its
/// linear half; and that products of unlike numbers of rows take longer than those of their mean.
class MegatronExperts : public ExpertLayer {
 public:
  explicit MegatronExperts(DecoderParts& parts);

  TensorId Forward(TensorId input) override;
  TensorId Backward(TensorId output_gradient, std::string input_gradient_name) override;

 private:
  BlockBuilder& b() { return parts_.builder(); }
  const Experts& experts() const { return parts_.decoder().experts; }
  bool Joins() const { return experts().kernel == Experts::Kernel::sequential && shape_.own_experts > 1; }
  bool IsGlu() const { return parts_.decoder().ffn_kind == Decoder::Ffn::glu; }
  bool IsFused() const { return IsGlu() && parts_.partition().fused_glu; }
  TensorId AddRows(std::string name, std::int64_t width) { return b().AddTensor(std::move(name), shape_.rows * width); }
  void AddParameters();
  ParameterId AddExperts(const std::string& name, std::int64_t out, std::int64_t in);

  RoutedTokens Route();
  TensorId RunExperts(const ExpertRows& rows);
  void Activate(TensorId weights);
  TensorId SharedForward();

  ExpertRows ExpertsBackward(TensorId gradient);
  void ProductBackward(const std::string& name, ParameterId weight, TensorId input, TensorId gradient, TensorId to);
  void WeightGradient(const std::string& name, ParameterId weight, TensorId input, TensorId gradient);
  TensorId ActivationBackward(TensorId d_down_in, TensorId d_weights);
  TensorId RouteBackward(TensorId d_weights);
  TensorId SharedBackward(TensorId gradient);
  void AddTo(TensorId sum, TensorId addend, const std::string& name);

  DecoderParts& parts_;
  const ExpertShape shape_;
  const std::int64_t width_, up_width_;  ///< of an expert on this rank, and of what its first product makes
  std::unique_ptr<TokenDispatcher> dispatcher_;
  FeedForward shared_;
  NormPart norm_;
  ParameterId router_, up_, down_, shared_gate_;
  TensorId scores_, chosen_, balance_scores_;  // of the router
  RoutedTokens routed_;
  ExpertRows rows_;
  TensorId up_out_, silu_, activated_, down_in_;
  TensorId shared_out_, gate_;
};

}  // namespace tidemark
