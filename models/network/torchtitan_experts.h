// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/network/decoder_parts.h"
#include "models/network/expert_layer.h"
#include "models/network/feed_forward.h"
#include "models/network/token_dispatcher.h"

namespace tidemark {

/// Whether FSDP2 shards these experts' weights by expert, as each rank that it shards them over gets one at least, or
/// else by rows of each (torchtitan/distributed/fsdp.py, apply_fsdp_to_decoder: Shard(0) or Shard(1)).
bool ShardsByExpert(const Experts& experts, const Partition& partition);

/// Experts whose router names those that a token goes to, and whose outputs are weighted, as torchtitan computes them
/// (Experts::Layer::torchtitan): MoE of models/common/moe.py and AllToAllTokenDispatcher of token_dispatcher.py at
/// b5bcd76c.
///
/// Of T tokens of a rank, E experts, k of them a token, e expert-parallel ranks, hidden size h and experts of width f,
/// whose three weights are [E / e, f, h], [E / e, h, f] and [E / e, f, h]:
///
///   router     input [T, h] and weight [E, h] cast to fp32, and their product, the logits [T, E]
///   route      scores [T, E]; numbers and scores of the chosen experts [T, k]; a map of them [T, E]
///   dispatch   N = T k rows in the order of the experts, sent to the ranks of their experts: R of them, sorted there
///   experts    [R, h] to [R, f] twice, silu of one times the other, and back to [R, h], in bf16
///   combine    sent back, cast to fp32, each times its weight, cast again, and added up in [T, h]
///
/// In bf16, the only dtype of these products:
///   saved      input [T, h] and weight [E, h] of the router in fp32, scores [T, E], the rows [R, h], [R, f] four
///              times; what comes back [N, h] in fp32; 32 bytes for each expert of a token; and with several ranks the
///              order of sorted rows, 8 R bytes
///   forward    until the layer returns its norm's output [T, h] and the map; until rows are added up what the experts
///              return [R, h] and zeros [T, h]; while they are weighted two of [N, h] in fp32
///   backward   three of [N, h] in fp32 besides the saved one
///
/// Left out: what routing computes on its way, all of it a few numbers per token and expert, and so how scores are made
/// and normalised, and what a bias that balances experts adds to them; the gate's gradient in fp32 [E, h]; the message
/// with counts of tokens, and that the host waits for it before it can launch the experts' products; that products of
/// unlike numbers of rows take longer than those of their mean; and that a compiler casts in the kernels that read, and
/// keeps outputs and the gate's input as they were.
class TorchtitanExperts : public ExpertLayer {
 public:
  explicit TorchtitanExperts(DecoderParts& parts);

  TensorId Forward(TensorId input) override;
  TensorId Backward(TensorId output_gradient, std::string input_gradient_name) override;

 private:
  BlockBuilder& b() { return parts_.builder(); }
  const Experts& experts() const { return parts_.decoder().experts; }
  bool IsFused() const { return parts_.partition().fused_glu; }
  TensorId AddRows(std::string name, std::int64_t width) { return b().AddTensor(std::move(name), shape_.rows * width); }
  TensorId AddWide(std::string name, std::int64_t elements) {
    return b().AddTensor(std::move(name), elements, Category::activation, shape_.weights);
  }
  void AddParameters();
  ParameterId AddExperts(const std::string& name, std::int64_t out, std::int64_t in);

  void Route();
  ExpertRows Dispatch();
  TensorId RunExperts();
  void Activate();
  void Product(const std::string& name, ParameterId weight, TensorId input, TensorId output);
  TensorId Combine(TensorId output);

  TensorId CombineBackward(TensorId gradient, TensorId& row_weights_gradient);
  TensorId ExpertsBackward(TensorId gradient);
  void ProductBackward(const std::string& name, ParameterId weight, TensorId input, TensorId gradient, TensorId to);
  TensorId RouteBackward(TensorId d_weights);
  void AddTo(TensorId sum, TensorId addend, const std::string& name);

  DecoderParts& parts_;
  const ExpertShape shape_;
  const std::int64_t width_;
  FeedForward shared_;
  NormPart norm_;
  ParameterId gate_weight_, w1_, w2_, w3_;
  TensorId gate_in_, gate_weight_wide_, scores_, map_, chosen_scores_, chosen_;  // of the router
  TensorId token_order_, assignment_order_;                                      // of the rows that are sent
  TensorId rank_order_;                                                          // of those that come, by expert
  ExpertRows rows_;
  TensorId w1_out_, w3_out_, silu_, down_in_;
  TensorId returned_;  ///< what the weights multiply
};

}  // namespace tidemark
