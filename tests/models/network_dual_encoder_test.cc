// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/models/job_fixture.h"
#include "tests/models/network_fixture.h"

namespace tidemark::network_dual_encoder_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// BERT-base as each tower, 1024-wide representations.
DualEncoder TwoBerts(bool shared) {
  DualEncoder network;
  Decoder& encoder = network.first;
  encoder.layers = 12;
  encoder.hidden = 768;
  encoder.ffn = 3072;
  encoder.heads = encoder.kv_heads = 12;
  encoder.head_size = 64;
  encoder.vocabulary = 30522;
  encoder.positions = 512;
  encoder.norm = Decoder::Norm::layer;
  encoder.ffn_kind = Decoder::Ffn::two_layer;
  encoder.rope = encoder.causal = false;
  encoder.qkv_bias = encoder.linear_bias = true;
  network.second = network.first;
  network.shared = shared;
  network.representation = 1024;
  return network;
}

Partition Samples(std::int64_t samples, std::int64_t ranks = 1, std::int64_t cached = 0) {
  Partition partition;
  partition.micro_batch_size = samples;
  partition.sequence_length = 64;
  partition.ranks = ranks;
  partition.cached_batch = cached;
  return partition;
}

std::vector<std::string> NamesOf(const std::vector<BlockRun>& runs) {
  std::vector<std::string> names;
  for (const BlockRun& run : runs) {
    names.push_back(run.block.name);
  }
  return names;
}

const Tensor& TensorOf(const Block& block, const std::string& name) {
  const auto found =
      std::find_if(block.tensors.begin(), block.tensors.end(), [&](const Tensor& one) { return one.name == name; });
  EXPECT_NE(found, block.tensors.end()) << name;
  return *found;
}

TEST(DualEncoderNetwork, HasTwoTowersOrOneAndALoss) {
  EXPECT_THAT(NamesOf(Build({"two", TwoBerts(false), {}}, Samples(8))),
              ElementsAre("first.embedding", "first.layer", "first.pool", "second.embedding", "second.layer",
                          "second.pool", "loss"));
  EXPECT_THAT(NamesOf(Build({"one", TwoBerts(true), {}}, Samples(8))),
              ElementsAre("encoder.embedding", "encoder.layer", "encoder.pool", "loss"));
}

/// bert-base-uncased as published has 109,482,240 parameters; of these the two token types (2 x 768), the norm behind
/// the embeddings (2 x 768) and the pooler (768 x 768 + 768) are not here, and a final norm (2 x 768; in BERT the last
/// layer's own) is. The projection is 768 x 1024.
TEST(DualEncoderNetwork, CountsTheParametersOfBertBase) {
  const std::int64_t tower = 109'482'240 - 2 * 768 - 2 * 768 - (768 * 768 + 768) + 2 * 768 + 768 * 1024;
  EXPECT_EQ(ParameterCount({"two", TwoBerts(false), {}}), 2 * tower);
  EXPECT_EQ(ParameterCount({"one", TwoBerts(true), {}}), tower);
}

TEST(DualEncoderNetwork, LooksBothWays) {
  const std::vector<BlockRun> runs = Build({"two", TwoBerts(false), {}}, Samples(8));
  for (const Action& action : runs[1].block.forward) {
    if (const auto* kernel = std::get_if<Calculate>(&action)) {
      if (const auto* attention = std::get_if<Attention>(&kernel->op)) {
        EXPECT_FALSE(attention->causal);
      }
    }
  }
}

TEST(DualEncoderNetwork, RepresentationsAreFp32AndPassByTheOtherTower) {
  const std::vector<BlockRun> runs = Build({"two", TwoBerts(false), {}}, Samples(8, 4));
  const Tensor& made = TensorOf(runs[2].block, "first.representation");
  EXPECT_EQ(SizeInBytes(made), 8 * 1024 * 4);
  EXPECT_TRUE(made.carried.yes && !made.carried.born_elsewhere && made.carried.dies_elsewhere);
  const Tensor& used = TensorOf(runs.back().block, "first.representation");
  EXPECT_TRUE(used.carried.yes && used.carried.born_elsewhere && !used.carried.dies_elsewhere);
  EXPECT_EQ(SizeInBytes(TensorOf(runs.back().block, "first.gathered")), 4 * 8 * 1024 * 4);
  EXPECT_EQ(SizeInBytes(TensorOf(runs.back().block, "logits")), 32 * 32 * 4);
}

/// F.cross_entropy on fp32 logits: they and the log-softmax, which is saved; in the backward pass that, its gradient
/// and the logits' (4, 8 and 12 bytes an entry, measured).
TEST(DualEncoderNetwork, TheLossPeaksAtThreeMatrices) {
  const std::vector<BlockRun> runs = Build({"two", TwoBerts(false), {}}, Samples(8, 4));
  const CategoryPeaks peaks = PeaksOf(runs.back().block, Category::logits);
  EXPECT_EQ(peaks.forward, 8 * 32 * 32);
  EXPECT_EQ(peaks.between, 4 * 32 * 32);
  EXPECT_EQ(peaks.all, 12 * 32 * 32);
}

TEST(DualEncoderNetwork, OneTowerTakesBothSidesAtOnceUnlessTheyAreCached) {
  DualEncoder network = TwoBerts(true);
  EXPECT_EQ(TensorOf(Build({"one", network, {}}, Samples(8))[0].block, "ids").elements, 2 * 8 * 64);
  EXPECT_EQ(TensorOf(Build({"one", network, {}}, Samples(8, 1, 64))[0].block, "ids").elements, 8 * 64);
  network.shared = false;
  network.targets = 3;
  const std::vector<BlockRun> runs = Build({"two", network, {}}, Samples(8, 1, 64));
  EXPECT_EQ(TensorOf(runs[0].block, "ids").elements, 8 * 64);
  EXPECT_EQ(TensorOf(runs[3].block, "ids").elements, 3 * 8 * 64);
  EXPECT_EQ(SizeInBytes(TensorOf(runs.back().block, "logits")), 64 * 3 * 64 * 4);
}

TEST(DualEncoderNetwork, ARepresentationAsWideAsTheTowerNeedsNoProjection) {
  DualEncoder network = TwoBerts(false);
  network.representation = 768;
  EXPECT_EQ(Build({"two", network, {}}, Samples(8))[2].block.parameters.size(), 2u);  // the norm's weight and bias
}

constexpr const char* kJob =
    "network:\n"
    "  dual_encoder:\n"
    "    representation: 128\n"
    "    first: {layers: 4, hidden: 256, ffn: 512, heads: 4, vocabulary: 1000}\n"
    "    second: {layers: 2, heads: 8}\n"
    "machine: h100-sxm-80gb\n"
    "strategy: plain\n"
    "sequence_length: 64\n";

TEST(DualEncoderNetwork, TheSecondTowerIsAsTheFirstWhereNothingElseIsSaid) {
  const auto network = std::get<DualEncoder>(MustParse(kJob).network.shape);
  EXPECT_EQ(network.first.layers, 4);
  EXPECT_EQ(network.first.head_size, 64);
  EXPECT_FALSE(network.first.causal);
  EXPECT_EQ(network.second.layers, 2);
  EXPECT_EQ(network.second.hidden, 256);
  EXPECT_EQ(network.second.kv_heads, 8);
  EXPECT_EQ(network.second.head_size, 32);
  EXPECT_EQ(network.representation, 128);
  const Job one = MustParse(kJob, {"network.dual_encoder.first.layers=7"});
  EXPECT_EQ(std::get<DualEncoder>(one.network.shape).first.layers, 7);
}

TEST(DualEncoderNetwork, WhatContradictsItselfIsRefused) {
  EXPECT_THAT(Refusal(kJob, {"network.dual_encoder.shared=true"}), HasSubstr("is another encoder than the first"));
  EXPECT_THAT(Refusal(kJob, {"network.layers=3"}), HasSubstr("a dual encoder stands alone"));
  EXPECT_THAT(Refusal(kJob, {"layout.tp=2"}), HasSubstr("tensor parallelism of a dual encoder is not modelled"));
  EXPECT_THAT(Refusal(kJob, {"layout.pp=2"}), HasSubstr("not cut into pipeline stages"));
  EXPECT_THAT(Refusal(kJob, {"network.dual_encoder.first.vocabulary=null"}),
              HasSubstr("expected a whole number, found nothing"));
}

}  // namespace
}  // namespace tidemark::network_dual_encoder_test
