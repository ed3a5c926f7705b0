// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/models/network_fixture.h"

// Of the worked network: n 4,096 tokens, h 1,024 (a 16 heads of 64), c 256 (k 4 heads of 64).

namespace tidemark::network_qk_norm_test {
namespace {

using ::testing::HasSubstr;

Network Normalised() {
  Network network = WorkedNetwork();
  std::get<Decoder>(network.shape).qk_norm = true;
  return network;
}

Block Layer(const Network& network, const Partition& partition) { return Build(network, partition).at(1).block; }
Block Layer(const Partition& partition) { return Layer(Normalised(), partition); }

const Parameter& ParameterOf(const Block& block, const std::string& name) {
  for (const Parameter& parameter : block.parameters) {
    if (parameter.name == name) {
      return parameter;
    }
  }
  ADD_FAILURE() << "no parameter " << name;
  return block.parameters.front();
}

/// What the layer saves beyond one without these norms.
std::map<std::string, std::int64_t> Added(const Network& network, const Partition& partition) {
  Network plain = network;
  std::get<Decoder>(plain.shape).qk_norm = false;
  std::map<std::string, std::int64_t> added = Saved(Layer(network, partition));
  for (const auto& [name, bytes] : Saved(Layer(plain, partition))) {
    EXPECT_EQ(added[name], bytes) << name;
    added.erase(name);
  }
  return added;
}

using Sizes = std::map<std::string, std::int64_t>;

// Norms keep what they read, 2nh and 2nc, and a number of fp32 for each head of each token, 4na and 4nk.
TEST(NetworkQkNorm, SavesTheProjectionsAndANumberForEachHead) {
  const Sizes whole = {{"q_projected", 8'388'608}, {"k_projected", 2'097'152}, {"rstd_q", 262'144}, {"rstd_k", 65'536}};
  const Sizes halves = {
      {"q_projected", 4'194'304}, {"k_projected", 1'048'576}, {"rstd_q", 131'072}, {"rstd_k", 32'768}};
  for (const bool packed : {false, true}) {
    for (const bool fused_rope : {false, true}) {
      Partition one = WorkedPartition(1, false), two = WorkedPartition(2, true);
      one.packed_qkv = two.packed_qkv = packed;
      one.fused_rope = two.fused_rope = fused_rope;
      EXPECT_EQ(Added(Normalised(), one), whole);
      EXPECT_EQ(Added(Normalised(), two), halves);
    }
  }
}

// As any eager RMSNorm (eager_norm.h): x in fp32, x / rms in two bytes and the numbers, and not the projection itself.
TEST(NetworkQkNorm, SavesWhatEagerNormsSave) {
  Network network = Normalised();
  std::get<Decoder>(network.shape).norm_kernel = Decoder::NormKernel::eager;
  EXPECT_EQ(Added(network, WorkedPartition(1, false)), (Sizes{{"norm_q_wide", 16'777'216},
                                                              {"norm_k_wide", 4'194'304},
                                                              {"norm_q_normalised", 8'388'608},
                                                              {"norm_k_normalised", 2'097'152},
                                                              {"rstd_q", 262'144},
                                                              {"rstd_k", 65'536}}));
}

TEST(NetworkQkNorm, OfLayerNormHasBiasesAndMeansToo) {
  Network network = Normalised();
  std::get<Decoder>(network.shape).norm = Decoder::Norm::layer;
  const Partition partition = WorkedPartition(1, false);
  EXPECT_EQ(Added(network, partition).at("mean_q"), 262'144);
  EXPECT_EQ(ParameterOf(Layer(network, partition), "norm_k_bias").elements, 64);
}

// transformers, models/qwen3/modeling_qwen3.py: a projection, its norm, then rotation. (There both are rotated behind
// the last projection; here each as in NetworkRotation.)
TEST(NetworkQkNorm, FollowsEachProjectionAndPrecedesItsRotation) {
  Partition p = WorkedPartition(1, false);
  p.fused_rope = false;
  const Block layer = Layer(p);
  EXPECT_EQ(Between(layer.forward, "wq.forward", "attention.forward"),
            (std::vector<std::string>{"wq.forward", "norm_q.forward", "rope.q.forward", "wk.forward", "norm_k.forward",
                                      "rope.k.forward", "wv.forward", "attention.forward"}));
  EXPECT_EQ(Between(layer.backward, "rope.k.backward", "wk.weight_gradient"),
            (std::vector<std::string>{"rope.k.backward", "norm_k.backward", "wk.weight_gradient"}));
  EXPECT_EQ(Between(layer.backward, "rope.q.backward", "wq.weight_gradient"),
            (std::vector<std::string>{"rope.q.backward", "norm_q.backward", "wq.weight_gradient"}));
}

TEST(NetworkQkNorm, PrecedesARotationOfBothWhereTheyAre) {
  Partition p = WorkedPartition(1, false);
  p.packed_qkv = true;
  const Block layer = Layer(p);
  EXPECT_EQ(Between(layer.forward, "qkv.forward", "attention.forward"),
            (std::vector<std::string>{"qkv.forward", "norm_q.forward", "norm_k.forward", "rope.forward",
                                      "attention.forward"}));
  EXPECT_EQ(Between(layer.backward, "rope.backward", "qkv.weight_gradient"),
            (std::vector<std::string>{"rope.backward", "norm_k.backward", "norm_q.backward", "qkv.weight_gradient"}));
}

TEST(NetworkQkNorm, NeedsNoRotation) {
  Network network = Normalised();
  std::get<Decoder>(network.shape).rope = false;
  const Block layer = Layer(network, WorkedPartition(1, false));
  EXPECT_EQ(Between(layer.forward, "wq.forward", "attention.forward"),
            (std::vector<std::string>{"wq.forward", "norm_q.forward", "wk.forward", "norm_k.forward", "wv.forward",
                                      "attention.forward"}));
}

// Every tensor-parallel rank has the whole weight, which its own heads share.
TEST(NetworkQkNorm, HasOneWeightForAllHeads) {
  for (const std::int64_t tp : {1, 2, 8}) {
    const Block layer = Layer(WorkedPartition(tp, false));
    for (const char* name : {"norm_q", "norm_k"}) {
      const Parameter& weight = ParameterOf(layer, name);
      EXPECT_EQ(weight.elements, 64);
      EXPECT_EQ(weight.elements_full, 64);
      EXPECT_TRUE(weight.shared_by_heads);
    }
    EXPECT_FALSE(ParameterOf(layer, "norm1").shared_by_heads);
  }
}

TEST(NetworkQkNorm, TakesNoViewsOfAPackedProjection) {
  Network network = Normalised();
  std::get<Decoder>(network.shape).qkv_views = true;
  EXPECT_THAT(Refusal(network, WorkedPartition(1, false)), HasSubstr("network.qkv_views"));
}

}  // namespace
}  // namespace tidemark::network_qk_norm_test
