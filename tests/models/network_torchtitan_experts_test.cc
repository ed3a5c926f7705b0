// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "tests/models/network_fixture.h"

// Expected sizes: those of torchtitan's experts (models/network/torchtitan_experts.h), as torchtitan at b5bcd76c
// allocated them for Qwen3 30B A3B and 8,192 tokens (tests/gpu/torchtitan_rehearsal.py): h = 2048, 128 experts of f =
// 768, eight for each token.

namespace tidemark::network_torchtitan_experts_test {
namespace {

constexpr std::int64_t kTokens = 8192, kHidden = 2048, kFfn = 768, kExperts = 128, kPerToken = 8;
constexpr std::int64_t kRows = kPerToken * kTokens, kMiB = 1 << 20;

Network WithExperts(const std::function<void(Experts&)>& change = {}) {
  Network network = WorkedNetwork();
  auto& decoder = std::get<Decoder>(network.shape);
  decoder.hidden = kHidden;
  decoder.experts = {
      .count = kExperts, .per_token = kPerToken, .ffn = kFfn, .router_fp32 = true, .layer = Experts::Layer::torchtitan};
  if (change) {
    change(decoder.experts);
  }
  return network;
}

Partition Over(std::int64_t ep, std::int64_t ranks = 8) {
  Partition p = WorkedPartition(1, false);
  p.micro_batch_size = 1;
  p.sequence_length = kTokens;
  p.fused_glu = false;
  p.ep = ep;
  p.etp = 1;
  p.ranks = ranks;
  return p;
}

Block Layer(const Network& network, const Partition& partition) { return Build(network, partition).at(1).block; }

const Parameter& Named(const Block& block, const std::string& name) {
  const auto found = std::find_if(block.parameters.begin(), block.parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == name; });
  EXPECT_NE(found, block.parameters.end()) << name;
  return *found;
}

TEST(TorchtitanExperts, SaveWhatTorchtitanKeeps) {
  std::map<std::string, std::int64_t> saved = Saved(Layer(WithExperts(), Over(1)));
  for (const char* of_attention : {"norm1_in", "rstd1", "qkv_in", "q", "k", "v", "attn_out", "lse"}) {
    saved.erase(of_attention);
  }
  const std::map<std::string, std::int64_t> expected = {
      {"norm2_in", 32 * kMiB},         // the layer's middle
      {"rstd2", 4 * kTokens},          // of its norm, whose output nobody keeps
      {"gate_in", 64 * kMiB},          // aten._to_copy of it
      {"gate_weight", kMiB},           // and of the gate
      {"routing_scores", 4 * kMiB},    // aten._softmax
      {"chosen_experts", kMiB / 2},    // aten.topk
      {"chosen_scores", kMiB / 4},     // aten.gather
      {"assignment_order", kMiB / 2},  // aten.sort.stable
      {"permuted_weights", kMiB / 4},  // aten.index of them
      {"token_order", kMiB / 2},       // aten.floor_divide
      {"permuted_rows", 256 * kMiB},   // aten.index of the tokens
      {"tokens_per_expert", 8 * kExperts},
      {"experts_w1_out", 96 * kMiB},   // aten._grouped_mm
      {"experts_silu", 96 * kMiB},     // aten.silu
      {"experts_w3_out", 96 * kMiB},   // aten._grouped_mm
      {"experts_down_in", 96 * kMiB},  // aten.mul
      {"combined_wide", 512 * kMiB},   // aten._to_copy of what they return
  };
  EXPECT_EQ(saved, expected);
}

/// Most bytes at once, in a pass, of tensors with these names.
CategoryPeaks PeaksOfNamed(Block block, const std::set<std::string>& names) {
  for (Tensor& tensor : block.tensors) {
    tensor.category = names.contains(tensor.name) ? Category::workspace : Category::activation;
  }
  return PeaksOf(block, Category::workspace);
}

// Behind the experts: what they return, 256 MiB, zeros, 32, both casts, 512 each, and the narrow one of 256. In the
// backward pass the gradient, what it is times the outputs and times the weights, each in fp32, beside the saved cast.
TEST(TorchtitanExperts, WeightTheirOutputsInTheWiderDtype) {
  const Block block = Layer(WithExperts(), Over(1));
  EXPECT_EQ(PeaksOfNamed(block, {"experts_out", "experts_zeros", "combined_wide", "experts_weighted_wide",
                                 "experts_weighted", "experts_sum"})
                .forward,
            (256 + 32 + 2 * 512 + 256) * kMiB);
  EXPECT_EQ(PeaksOfNamed(block, {"combined_wide", "d_experts_weighted_wide", "d_row_weights_products",
                                 "d_combined_wide", "d_experts_weighted", "d_combined"})
                .all,
            4 * 512 * kMiB);
}

TEST(TorchtitanExperts, KeepOneTensorLessWhereTheirUnitIsFused) {
  Partition fused = Over(1);
  fused.fused_glu = true;
  EXPECT_EQ(SavedTotal(Layer(WithExperts(), Over(1))) - SavedTotal(Layer(WithExperts(), fused)), 96 * kMiB);
}

// Frozen experts have no use for what their products read.
TEST(TorchtitanExperts, KeepNoInputsOfFrozenProducts) {
  Network network = WithExperts();
  network.trainable = {"layer.router"};
  const std::map<std::string, std::int64_t> saved = Saved(Layer(network, Over(1)));
  EXPECT_FALSE(saved.contains("permuted_rows"));
  EXPECT_FALSE(saved.contains("experts_down_in"));
  EXPECT_TRUE(saved.contains("gate_in"));
}

TEST(TorchtitanExperts, SendRowsAndNoWeights) {
  const Block block = Layer(WithExperts(), Over(4));
  for (const auto* pass : {&block.forward, &block.backward}) {
    std::int64_t sent = 0, messages = 0;
    for (const Action& action : *pass) {
      if (const auto* message = std::get_if<Communicate>(&action)) {
        EXPECT_EQ(message->kind, CollectiveKind::all_to_all);
        EXPECT_EQ(message->among, Among::expert_parallel);
        EXPECT_EQ(message->dtype, DType::bf16);
        sent += message->payload_elements;
        ++messages;
      }
    }
    EXPECT_EQ(messages, 2) << "there and back";
    EXPECT_EQ(sent, 2 * kRows * kHidden);
  }
  EXPECT_EQ(Named(block, "experts_w2").elements, kExperts / 4 * kFfn * kHidden);
  EXPECT_EQ(Named(block, "experts_w2").elements_full, kExperts * kFfn * kHidden);
}

// apply_fsdp_to_decoder: Shard(0), and Shard(1) where there are more ranks than experts.
TEST(TorchtitanExperts, AreShardedByExpertsWhereThereAreEnough) {
  EXPECT_EQ(Named(Layer(WithExperts(), Over(1, 128)), "experts_w1").ShardedRows(), kExperts);
  EXPECT_EQ(Named(Layer(WithExperts(), Over(1, 256)), "experts_w1").ShardedRows(), kFfn);
  EXPECT_EQ(Named(Layer(WithExperts(), Over(1, 256)), "experts_w2").ShardedRows(), kHidden);
}

// What all tokens go through beside them reads the norm's output, which is kept for it.
TEST(TorchtitanExperts, SharedOnesKeepTheirInput) {
  const Network network = WithExperts([](Experts& e) { e.shared_ffn = 256; });
  EXPECT_EQ(SavedTotal(Layer(network, Over(1))) - SavedTotal(Layer(WithExperts(), Over(1))),
            kTokens * 2 * (kHidden + 4 * 256));
}

TEST(TorchtitanExperts, RefuseWhatTorchtitanHasNot) {
  const auto refusal = [](const std::function<void(Experts&)>& change) {
    return Refusal(WithExperts(change), Over(1));
  };
  const std::pair<std::function<void(Experts&)>, const char*> cases[] = {
      {[](Experts& e) { e.router_fp32 = false; }, "router_fp32 to true"},
      {[](Experts& e) { e.balancing_loss = true; }, "balancing_loss to false"},
      {[](Experts& e) {
         e = {.count = 8,
              .ffn = 8,
              .shared_ffn = 8,
              .shared_gate = true,
              .router_fp32 = true,
              .layer = Experts::Layer::torchtitan};
       },
       "shared_gate to false"},
      {[](Experts& e) { e.kernel = Experts::Kernel::sequential; }, "kernel to grouped"},
      {[](Experts& e) { e.dispatcher = Experts::Dispatcher::all_gather; }, "dispatcher to all-to-all"},
  };
  for (const auto& [change, hint] : cases) {
    EXPECT_NE(refusal(change).find(hint), std::string::npos) << refusal(change);
  }
  Partition fp32 = Over(1);
  fp32.compute = DType::fp32;
  EXPECT_NE(Refusal(WithExperts(), fp32).find("precision.params to bf16"), std::string::npos);
  Partition parts = WorkedPartition(2, true);
  parts.etp = 2;
  EXPECT_NE(Refusal(WithExperts(), parts).find("layout.tp to 1"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::network_torchtitan_experts_test
