// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/models/network_fixture.h"

// Of the worked network: n 4,096 tokens, h 1,024 (a 16 heads of 64), c 256 (k 4 heads of 64), 2nh 8,388,608 bytes.

namespace tidemark::network_norm_placement_test {
namespace {

using ::testing::HasSubstr;
using Placement = Decoder::NormPlacement;
using Sizes = std::map<std::string, std::int64_t>;

Network Placed(Placement placement) {
  Network network = WorkedNetwork();
  std::get<Decoder>(network.shape).norm_placement = placement;
  return network;
}

/// OLMo 2's.
Network OverAllHeads() {
  Network network = Placed(Placement::outputs);
  std::get<Decoder>(network.shape).qk_norm = true;
  std::get<Decoder>(network.shape).qk_norm_over = Decoder::QkNormOver::all_heads;
  return network;
}

Block Layer(const Network& network, const Partition& partition) { return Build(network, partition).at(1).block; }

/// What the layer saves that one with norms of inputs does not, and what it does not save that that one does.
struct Difference {
  Sizes more, less;
};

Difference DifferenceOf(const Network& network, const Partition& partition) {
  Difference difference{Saved(Layer(network, partition)), Saved(Layer(WorkedNetwork(), partition))};
  for (auto at = difference.more.begin(); at != difference.more.end();) {
    const auto same = difference.less.find(at->first);
    if (same != difference.less.end() && same->second == at->second) {
      difference.less.erase(same);
      at = difference.more.erase(at);
    } else {
      ++at;
    }
  }
  return difference;
}

std::vector<std::string> NormsOf(const Block& block) {
  std::vector<std::string> names;
  for (const Parameter& parameter : block.parameters) {
    if (parameter.name.starts_with("norm")) {
      names.push_back(parameter.name);
      EXPECT_EQ(parameter.elements, parameter.elements_full) << parameter.name;
    }
  }
  return names;
}

// Norms of outputs keep what they read, 2nh, and 4n of statistics each.
TEST(NetworkNormPlacement, OfBothKeepsWhatTheProjectionsMadeBesideTheRest) {
  const Difference whole = DifferenceOf(Placed(Placement::both), WorkedPartition(1, false));
  EXPECT_EQ(whole.more,
            (Sizes{{"wo_out", 8'388'608}, {"down_out", 8'388'608}, {"rstd_attention", 16'384}, {"rstd_ffn", 16'384}}));
  EXPECT_EQ(whole.less, Sizes{});
  const Difference rows = DifferenceOf(Placed(Placement::both), WorkedPartition(2, true));
  EXPECT_EQ(
      rows.more,
      (Sizes{
          {"wo_scattered", 4'194'304}, {"down_scattered", 4'194'304}, {"rstd_attention", 8'192}, {"rstd_ffn", 8'192}}));
  EXPECT_EQ(rows.less, Sizes{});
}

// Linear layers read the residual stream itself, which norms of inputs keep beside their outputs: as many bytes as with
// norms of inputs.
TEST(NetworkNormPlacement, OfOutputsAloneKeepsAsManyBytesAsOfInputs) {
  const Difference whole = DifferenceOf(Placed(Placement::outputs), WorkedPartition(1, false));
  EXPECT_EQ(whole.more, (Sizes{{"attention_in", 8'388'608},
                               {"ffn_in", 8'388'608},
                               {"wo_out", 8'388'608},
                               {"down_out", 8'388'608},
                               {"rstd_attention", 16'384},
                               {"rstd_ffn", 16'384}}));
  EXPECT_EQ(whole.less, (Sizes{{"norm1_in", 8'388'608},
                               {"norm2_in", 8'388'608},
                               {"qkv_in", 8'388'608},
                               {"gu_in", 8'388'608},
                               {"rstd1", 16'384},
                               {"rstd2", 16'384}}));
  for (const bool scattered : {false, true}) {
    const Partition p = WorkedPartition(2, scattered);
    EXPECT_EQ(SavedTotal(Layer(Placed(Placement::outputs), p)), SavedTotal(Layer(WorkedNetwork(), p))) << scattered;
  }
}

// Where rows are gathered again, what was gathered is not kept, and the stream is gathered and not a norm's output.
TEST(NetworkNormPlacement, OfOutputsGathersTheResidualStream) {
  const Block layer = Layer(Placed(Placement::outputs), WorkedPartition(2, true));
  EXPECT_EQ(Between(layer.forward, "qkv_in.gather", "wq.forward"),
            (std::vector<std::string>{"qkv_in.gather", "wq.forward"}));
  EXPECT_EQ(NameOf(layer.forward.front()), "qkv_in.gather");
  EXPECT_EQ(Reads(layer.forward.front()), std::vector<TensorId>{layer.input});
}

// transformers, modeling_olmo2.py and modeling_gemma3.py, Olmo2DecoderLayer and Gemma3DecoderLayer: the norm of what a
// part makes stands between its last projection and the residual addition.
TEST(NetworkNormPlacement, StandsBetweenAPartsLastProjectionAndItsAddition) {
  for (const Placement placement : {Placement::outputs, Placement::both}) {
    const Block layer = Layer(Placed(placement), WorkedPartition(1, false));
    EXPECT_EQ(Between(layer.forward, "wo.forward", "residual1.forward"),
              (std::vector<std::string>{"wo.forward", "norm_attention.forward", "residual1.forward"}));
    EXPECT_EQ(Between(layer.forward, "down.forward", "residual2.forward"),
              (std::vector<std::string>{"down.forward", "norm_ffn.forward", "residual2.forward"}));
    EXPECT_EQ(NameOf(layer.backward.front()), "norm_ffn.backward");
    EXPECT_EQ(Between(layer.backward, "residual2.backward", "wo.weight_gradient"),
              (std::vector<std::string>{"residual2.backward", "norm_attention.backward", "wo.weight_gradient"}));
  }
}

// Behind their sum over ranks: statistics are of whole rows.
TEST(NetworkNormPlacement, StandsBehindTheSumOverRanks) {
  const Block layer = Layer(Placed(Placement::both), WorkedPartition(2, false));
  EXPECT_EQ(Between(layer.forward, "wo.forward", "residual1.forward"),
            (std::vector<std::string>{"wo.forward", "wo.reduce", "norm_attention.forward", "residual1.forward"}));
}

TEST(NetworkNormPlacement, GivesEveryNormAWeightOfItsOwn) {
  const Partition p = WorkedPartition(1, false);
  EXPECT_THAT(NormsOf(Layer(Placed(Placement::inputs), p)), testing::UnorderedElementsAre("norm1", "norm2"));
  EXPECT_THAT(NormsOf(Layer(Placed(Placement::outputs), p)),
              testing::UnorderedElementsAre("norm_attention", "norm_ffn"));
  EXPECT_THAT(NormsOf(Layer(Placed(Placement::both), p)),
              testing::UnorderedElementsAre("norm1", "norm2", "norm_attention", "norm_ffn"));
}

// Of all heads at once: a number for each token, 4n, where head by head there is one for each head of it.
TEST(NetworkNormPlacement, NormalisesAllHeadsOfATokenAtOnce) {
  const Block layer = Layer(OverAllHeads(), WorkedPartition(1, false));
  const Sizes saved = Saved(layer);
  EXPECT_EQ(saved.at("rstd_q"), 16'384);
  EXPECT_EQ(saved.at("rstd_k"), 16'384);
  EXPECT_EQ(saved.at("q_projected"), 8'388'608);
  EXPECT_EQ(saved.at("k_projected"), 2'097'152);
  for (const Parameter& parameter : layer.parameters) {
    EXPECT_FALSE(parameter.shared_by_heads) << parameter.name;
    if (parameter.name == "norm_q") {
      EXPECT_EQ(parameter.elements, 1024);
    } else if (parameter.name == "norm_k") {
      EXPECT_EQ(parameter.elements, 256);
    }
  }
}

// One layer of 128, with 8 heads on 4 and 352 of the feed-forward part, and 256 tokens in bf16: the tensors that
// autograd saved in transformers 5.24 under PyTorch 2.15 (saved_tensors_hooks around Olmo2DecoderLayer and
// Gemma3DecoderLayer, each storage once, without parameters and the tables of rotations). Gemma's norms keep their
// weights in fp32, as eager-fp32-weight does; OLMo's multiply by them as they are.
TEST(NetworkNormPlacement, SavesWhatTransformersSaves) {
  Network network = WorkedNetwork();
  auto& decoder = std::get<Decoder>(network.shape);
  decoder.hidden = 128;
  decoder.ffn = 352;
  decoder.heads = 8;
  decoder.head_size = 16;
  decoder.norm_kernel = Decoder::NormKernel::eager_fp32_weight;
  decoder.qk_norm = true;
  Partition p = WorkedPartition(1, false);
  p.micro_batch_size = 1;
  p.sequence_length = 256;
  p.fused_rope = p.fused_glu = p.packed_gate_up = false;
  decoder.norm_placement = Placement::both;
  EXPECT_EQ(SavedTotal(Layer(network, p)), 2'517'120);
  decoder.norm_placement = Placement::outputs;
  decoder.qk_norm_over = Decoder::QkNormOver::all_heads;
  const std::int64_t weights = 4 * (128 + 128 + 128 + 64);
  EXPECT_EQ(SavedTotal(Layer(network, p)) - weights, 1'978'368);
}

TEST(NetworkNormPlacement, RefusesWhatIsNotModelled) {
  EXPECT_THAT(Refusal(OverAllHeads(), WorkedPartition(2, false)), HasSubstr("layout.tp"));
  Network none = OverAllHeads();  // of a zoo's network that is priced without them
  std::get<Decoder>(none.shape).qk_norm = false;
  EXPECT_TRUE(BuildBlocks(none, WorkedPartition(2, false)).ok());
  Partition unsafe = WorkedPartition(2, true);
  unsafe.gathered = Partition::Gathered::pool_unsafe;
  EXPECT_THAT(Refusal(Placed(Placement::outputs), unsafe), HasSubstr("buffers.tp_gather"));
  EXPECT_TRUE(BuildBlocks(Placed(Placement::both), unsafe).ok());
  Network experts = Placed(Placement::outputs);
  std::get<Decoder>(experts.shape).experts = {.count = 8, .per_token = 2, .ffn = 512};
  EXPECT_THAT(Refusal(experts, WorkedPartition(1, false)), HasSubstr("network.norm_placement"));
  std::get<Decoder>(experts.shape).norm_placement = Placement::both;
  EXPECT_TRUE(BuildBlocks(experts, WorkedPartition(1, false)).ok());
}

}  // namespace
}  // namespace tidemark::network_norm_placement_test
