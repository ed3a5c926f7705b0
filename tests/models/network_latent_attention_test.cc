// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/models/network_fixture.h"

// The worked network with multi-latent attention: n 4,096 tokens, h 1,024, a 16 heads of 96 numbers of which 32 are
// rotated, values of 64, latent vectors of r 256 for keys and values and 384 for queries.

namespace tidemark::network_latent_attention_test {
namespace {

using ::testing::HasSubstr;
using Sizes = std::map<std::string, std::int64_t>;

Decoder& DecoderOf(Network& network) { return std::get<Decoder>(network.shape); }

Network Latent(std::int64_t q_lora_rank = 384) {
  Network network = WorkedNetwork();
  Decoder& d = DecoderOf(network);
  d.kv_heads = d.heads;
  d.head_size = 96;
  d.latent = {.kv_lora_rank = 256, .q_lora_rank = q_lora_rank, .rope_head_size = 32, .value_head_size = 64};
  return network;
}

Block Layer(const Network& network, const Partition& partition) { return Build(network, partition).at(1).block; }

Partition Unfused(Partition partition) {
  partition.fused_rope = false;
  return partition;
}

/// With values in tensors of their own, as Megatron-LM has them.
Partition Copied(Partition partition) {
  partition.latent_value_views = false;
  return partition;
}

/// What attention saves, of all that the layer does.
Sizes SavedByAttention(const Network& network, const Partition& partition) {
  Sizes saved = Saved(Layer(network, partition));
  for (const char* others : {"norm2_in", "rstd2", "gu_in", "gate_up", "down_in"}) {
    saved.erase(others);
  }
  return saved;
}

/// Bytes of a bf16 or fp32 tensor.
std::int64_t Bf16(std::int64_t rows, std::int64_t width) { return 2 * rows * width; }
std::int64_t Fp32(std::int64_t rows, std::int64_t width) { return 4 * rows * width; }

// By hand from DeepSeek-V2, 2024, section 2.1: each linear layer its input, each norm its input and a number a row,
// attention its queries, keys, values, output and a number for each head of a row.
TEST(NetworkLatentAttention, SavesItsLatentVectorsAndWhatTheyAreMadeInto) {
  constexpr std::int64_t n = 4096;
  const Sizes one = {{"norm1_in", Bf16(n, 1024)},    {"rstd1", Fp32(n, 1)},   {"latent_in", Bf16(n, 1024)},
                     {"q_latent", Bf16(n, 384)},     {"rstd_q", Fp32(n, 1)},  {"q_in", Bf16(n, 384)},
                     {"kv_latent", Bf16(n, 256)},    {"rstd_kv", Fp32(n, 1)}, {"kv_in", Bf16(n, 256)},
                     {"q", Bf16(n, 16 * 96)},        {"k", Bf16(n, 16 * 96)}, {"v", Bf16(n, 16 * 64)},
                     {"attn_out", Bf16(n, 16 * 64)}, {"lse", Fp32(n, 16)}};
  const Partition partition = WorkedPartition(1, false);
  EXPECT_EQ(SavedByAttention(Latent(), Copied(partition)), one);
  EXPECT_EQ(SavedByAttention(Latent(), Copied(Unfused(partition))), one);

  // Without a vector of their own queries are made from the norm's output.
  Sizes direct = one;
  for (const char* name : {"q_latent", "rstd_q", "q_in"}) {
    direct.erase(name);
  }
  EXPECT_EQ(SavedByAttention(Latent(0), Copied(partition)), direct);

  // Values that are a view keep each head's own part of its key, of 64 numbers.
  Sizes kept = one;
  kept.erase("v");
  kept["kv"] = Bf16(n, 16 * (64 + 64));
  EXPECT_EQ(SavedByAttention(Latent(), partition), kept);
  EXPECT_EQ(SavedByAttention(Latent(), Unfused(partition)), kept);
}

// Read off transformers 5.24 under torch 2.15: DeepseekV3Attention of hidden size 64 with 4 heads, q_lora_rank 32,
// kv_lora_rank 16, qk_nope_head_dim 16, qk_rope_head_dim 8 and v_head_dim 16, on 2 x 32 tokens in bf16, with an
// attention that saves what a flash kernel does. Bytes of each storage that autograd's hooks for saved tensors were
// given, weights aside: norms are eager there, values are a view, and sines and cosines (512 bytes each) are not
// modelled.
TEST(NetworkLatentAttention, SavesWhatTransformersSaves) {
  Network network = Latent(32);
  Decoder& d = DecoderOf(network);
  d.hidden = 64;
  d.heads = d.kv_heads = 4;
  d.head_size = 24;
  d.latent = {.kv_lora_rank = 16, .q_lora_rank = 32, .rope_head_size = 8, .value_head_size = 16};
  d.norm_kernel = Decoder::NormKernel::eager;
  Partition partition = Unfused(WorkedPartition(1, false));
  partition.micro_batch_size = 2;
  partition.sequence_length = 32;
  Sizes saved = SavedByAttention(network, partition);
  for (const char* outside : {"norm1_wide", "norm1_normalised", "rstd1", "norm2_wide", "norm2_normalised"}) {
    EXPECT_EQ(saved.erase(outside), 1U) << outside;
  }
  EXPECT_EQ(saved, (Sizes{{"latent_in", 8192},
                          {"norm_q_wide", 8192},
                          {"rstd_q", 256},
                          {"norm_q_normalised", 4096},
                          {"q_in", 4096},
                          {"norm_kv_wide", 4096},
                          {"rstd_kv", 256},
                          {"norm_kv_normalised", 2048},
                          {"kv_in", 2048},
                          {"q", 12288},
                          {"k", 12288},
                          {"kv", 16384},
                          {"attn_out", 8192},
                          {"lse", 1024}}));
}

// Megatron-LM: the latent vectors are of own rows where these are scattered, all else of own heads.
TEST(NetworkLatentAttention, TensorParallelRanksShareHeadsAndScatteredRows) {
  constexpr std::int64_t n = 4096;
  Sizes two = {{"norm1_in", Bf16(n / 2, 1024)}, {"rstd1", Fp32(n / 2, 1)},   {"latent_in", Bf16(n / 2, 1024)},
               {"q_latent", Bf16(n / 2, 384)},  {"rstd_q", Fp32(n / 2, 1)},  {"q_in", Bf16(n / 2, 384)},
               {"kv_latent", Bf16(n / 2, 256)}, {"rstd_kv", Fp32(n / 2, 1)}, {"kv_in", Bf16(n / 2, 256)},
               {"q", Bf16(n, 8 * 96)},          {"k", Bf16(n, 8 * 96)},      {"v", Bf16(n, 8 * 64)},
               {"attn_out", Bf16(n, 8 * 64)},   {"lse", Fp32(n, 8)}};
  EXPECT_EQ(SavedByAttention(Latent(), Copied(WorkedPartition(2, true))), two);
  for (const char* rows :
       {"norm1_in", "rstd1", "latent_in", "q_latent", "rstd_q", "q_in", "kv_latent", "rstd_kv", "kv_in"}) {
    two[rows] *= 2;
  }
  EXPECT_EQ(SavedByAttention(Latent(), Copied(WorkedPartition(2, false))), two);
}

TEST(NetworkLatentAttention, HasTheWeightsOfItsProjections) {
  const auto parameters = [](const Network& network, std::int64_t tp) {
    Sizes elements;
    for (const Parameter& parameter : Layer(network, WorkedPartition(tp, tp > 1)).parameters) {
      EXPECT_EQ(parameter.elements % parameter.rows, 0) << parameter.name;
      elements[parameter.name] = parameter.elements;
    }
    for (const char* others : {"norm1", "norm2", "gate_up", "down"}) {
      EXPECT_EQ(elements.erase(others), 1U) << others;
    }
    return elements;
  };
  const Sizes one = {{"wq_a", 1024 * 384},         {"norm_q", 384},  {"wq_b", 384 * 16 * 96},
                     {"wkv_a", 1024 * (256 + 32)}, {"norm_kv", 256}, {"wkv_b", 256 * 16 * (64 + 64)},
                     {"wo", 16 * 64 * 1024}};
  EXPECT_EQ(parameters(Latent(), 1), one);
  Sizes four = one;
  for (const char* divided : {"wq_b", "wkv_b", "wo"}) {
    four[divided] /= 4;
  }
  EXPECT_EQ(parameters(Latent(), 4), four);
  Sizes direct = one;
  for (const char* name : {"wq_a", "norm_q", "wq_b"}) {
    direct.erase(name);
  }
  direct["wq"] = 1024 * 16 * 96;
  EXPECT_EQ(parameters(Latent(0), 1), direct);
}

// 187,107,328 weights of a layer's attention in DeepSeek V3 (the shapes of its safetensors files).
TEST(NetworkLatentAttention, HasTheWeightsOfDeepseekV3) {
  Network network = WorkedNetwork();
  Decoder& d = DecoderOf(network);
  d.hidden = 7168;
  d.heads = d.kv_heads = 128;
  d.head_size = 192;
  d.latent = {.kv_lora_rank = 512, .q_lora_rank = 1536, .rope_head_size = 64, .value_head_size = 128};
  std::int64_t attention = 0;
  for (const Parameter& parameter : Layer(network, WorkedPartition(1, false)).parameters) {
    const bool other = parameter.name == "norm1" || parameter.name == "norm2" || parameter.name == "gate_up" ||
                       parameter.name == "down";
    attention += other ? 0 : parameter.elements;
  }
  EXPECT_EQ(attention, 187'107'328);
}

TEST(NetworkLatentAttention, RunsInTheOrderOfTheCodeAndItsBackwardPassInTheOppositeOne) {
  const Block layer = Layer(Latent(), Unfused(WorkedPartition(1, false)));
  EXPECT_EQ(Between(layer.forward, "norm1.forward", "attention.forward"),
            (std::vector<std::string>{"norm1.forward", "wq_a.forward", "norm_q.forward", "wq_b.forward",
                                      "rope.q.forward", "wkv_a.forward", "norm_kv.forward", "wkv_b.forward",
                                      "rope.k.forward", "latent_heads.forward", "attention.forward"}));
  EXPECT_EQ(Between(layer.backward, "attention.backward", "norm1.backward"),
            (std::vector<std::string>{
                "attention.backward", "latent_heads.backward", "rope.k.backward", "wkv_b.weight_gradient",
                "wkv_b.input_gradient", "norm_kv.backward", "wkv_a.weight_gradient", "wkv_a.input_gradient",
                "rope.q.backward", "wq_b.weight_gradient", "wq_b.input_gradient", "norm_q.backward",
                "wq_a.weight_gradient", "wq_a.input_gradient", "wq.sum_input_gradient", "norm1.backward"}));
}

// Fused rotation turns queries where they are, and what keys share on its way into them.
TEST(NetworkLatentAttention, FusedRotationMakesNoTensorOfItsOwn) {
  const Block layer = Layer(Latent(), WorkedPartition(1, false));
  EXPECT_EQ(Between(layer.forward, "wkv_b.forward", "attention.forward"),
            (std::vector<std::string>{"wkv_b.forward", "latent_heads.forward", "attention.forward"}));
  EXPECT_EQ(Between(layer.backward, "attention.backward", "wkv_b.weight_gradient"),
            (std::vector<std::string>{"attention.backward", "latent_heads.backward", "wkv_b.weight_gradient"}));
  const auto rotated = [](const Block& block) {
    std::map<std::string, std::int64_t> elements;
    for (const Action& action : block.forward) {
      const auto* calculate = std::get_if<Calculate>(&action);
      if (calculate != nullptr && std::holds_alternative<Rope>(calculate->op)) {
        elements[calculate->name] = std::get<Rope>(calculate->op).elements / 4096;
      }
    }
    return elements;
  };
  EXPECT_EQ(rotated(layer), (Sizes{{"rope.q.forward", 16 * 32}})) << "of each head the part that is turned";
  EXPECT_EQ(rotated(Layer(Latent(), Unfused(WorkedPartition(1, false)))),
            (Sizes{{"rope.q.forward", 16 * 96}, {"rope.k.forward", 32}}))
      << "and the rest is copied";
}

// What the keys of all heads share is gathered with the latent vectors; of its gradient each rank has its heads' part.
TEST(NetworkLatentAttention, TensorParallelRanksExchangeLatentVectorsOnly) {
  const auto exchanged = [](const Partition& partition) {
    std::vector<std::string> all;
    const Block layer = Layer(Latent(), partition);
    for (const auto* pass : {&layer.forward, &layer.backward}) {
      for (const Action& action : *pass) {
        const auto* collective = std::get_if<Communicate>(&action);
        if (collective != nullptr && !collective->name.starts_with("gu_in") && !collective->name.starts_with("wo") &&
            !collective->name.starts_with("down") && !collective->name.starts_with("d_")) {
          all.push_back(collective->name + " " + std::to_string(collective->payload_elements / 4096));
        }
      }
    }
    return all;
  };
  EXPECT_EQ(exchanged(WorkedPartition(4, false)),
            (std::vector<std::string>{"k_shared.reduce_gradient 32", "kv_in.reduce_gradient 256",
                                      "q_in.reduce_gradient 384"}));
  EXPECT_EQ(
      exchanged(WorkedPartition(4, true)),
      (std::vector<std::string>{"q_in.gather 384", "k_shared.gather 32", "kv_in.gather 256",
                                "k_shared.scatter_gradient 32", "kv_in.gather_again 256", "kv_in.scatter_gradient 256",
                                "q_in.gather_again 384", "q_in.scatter_gradient 384"}));
}

// 2 n^2 / 2 times a head's size for each product: scores over 96, the output over 64; backward scores, dQ, dK and dP,
// dV.
TEST(NetworkLatentAttention, MultipliesHeadsOfTwoSizes) {
  const auto of = [](bool backward) {
    return Attention{.batch = 1,
                     .heads = 2,
                     .kv_heads = 2,
                     .sequence = 10,
                     .head_size = 96,
                     .value_head_size = 64,
                     .backward = backward};
  };
  EXPECT_EQ(FlopsOf(of(false)).count(), 2 * 10 * 10 * (96 + 64));
  EXPECT_EQ(FlopsOf(of(true)).count(), 2 * 10 * 10 * (3 * 96 + 2 * 64));
  // q, k, v and out once; backward also their gradients, and lse.
  EXPECT_EQ(BytesMovedBy(of(false)).count(), 2 * 10 * 2 * (96 + 96 + 64 + 64) + 4 * 10 * 2);
  EXPECT_EQ(BytesMovedBy(of(true)).count(), 2 * (2 * 10 * 2 * (96 + 96 + 64 + 64)) + 4 * 10 * 2);
}

TEST(NetworkLatentAttention, RefusesWhatItCannotBe) {
  const auto refusal = [](auto change) {
    Network network = Latent();
    change(DecoderOf(network));
    return Refusal(network, WorkedPartition(1, false));
  };
  EXPECT_THAT(refusal([](Decoder& d) { d.latent.kv_lora_rank = 0; }), HasSubstr("kv_lora_rank"));
  EXPECT_THAT(refusal([](Decoder& d) { d.latent.rope_head_size = 33; }), HasSubstr("even number"));
  EXPECT_THAT(refusal([](Decoder& d) { d.latent.rope_head_size = 96; }), HasSubstr("qk_nope_head_dim"));
  EXPECT_THAT(refusal([](Decoder& d) { d.latent.rope_head_size = 0; }), HasSubstr("found 0"));
  EXPECT_THAT(refusal([](Decoder& d) { d.latent.value_head_size = 0; }), HasSubstr("value_head_size"));
  EXPECT_THAT(refusal([](Decoder& d) { d.kv_heads = 4; }), HasSubstr("as many kv_heads (4) as heads (16)"));
  EXPECT_THAT(refusal([](Decoder& d) { d.rope = false; }), HasSubstr("network.rope"));
  EXPECT_THAT(refusal([](Decoder& d) { d.qk_norm = true; }), HasSubstr("network.qk_norm"));
  EXPECT_THAT(refusal([](Decoder& d) { d.qkv_bias = true; }), HasSubstr("network.qkv_bias"));
  EXPECT_THAT(refusal([](Decoder& d) { d.attention_kernel = Decoder::AttentionKernel::eager; }),
              HasSubstr("network.attention_kernel to flash"));
}

}  // namespace
}  // namespace tidemark::network_latent_attention_test
