// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/models/job_fixture.h"
#include "tests/models/network_fixture.h"

// Networks whose first layers have a feed-forward part, and all others experts in its place.

namespace tidemark::network_dense_layers_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Decoder WithExperts(std::int64_t dense_layers) {
  Decoder d = std::get<Decoder>(WorkedNetwork().shape);
  d.experts.count = 8;
  d.experts.ffn = 512;
  d.experts.dense_layers = dense_layers;
  return d;
}

std::vector<BlockRun> RunsOf(const Decoder& decoder) {
  return Build({"mixed", decoder, {}}, WorkedPartition(1, false));
}

std::vector<std::string> ActionsOf(const Block& block) {
  std::vector<std::string> names;
  for (const auto* pass : {&block.forward, &block.backward}) {
    for (const Action& action : *pass) {
      names.push_back(NameOf(action));
    }
  }
  return names;
}

std::map<std::string, std::int64_t> TensorsOf(const Block& block) {
  std::map<std::string, std::int64_t> tensors;
  for (const Tensor& tensor : block.tensors) {
    tensors[tensor.name] = SizeInBytes(tensor);
  }
  return tensors;
}

TEST(DenseLayers, StandBeforeThoseWithExperts) {
  const std::vector<BlockRun> runs = RunsOf(WithExperts(1));
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[1].block.name, "dense.layer");
  EXPECT_EQ(runs[1].count, 1);
  EXPECT_EQ(runs[2].block.name, "layer");
  EXPECT_EQ(runs[2].count, 3);
}

TEST(DenseLayers, AreThoseOfANetworkWithoutExpertsAndTheOthersOfOneWithout) {
  const std::vector<BlockRun> mixed = RunsOf(WithExperts(1));
  const Block dense = RunsOf(std::get<Decoder>(WorkedNetwork().shape)).at(1).block;
  const Block experts = RunsOf(WithExperts(0)).at(1).block;
  ASSERT_NE(ActionsOf(dense), ActionsOf(experts));
  EXPECT_EQ(ActionsOf(mixed.at(1).block), ActionsOf(dense));
  EXPECT_EQ(TensorsOf(mixed.at(1).block), TensorsOf(dense));
  EXPECT_EQ(ActionsOf(mixed.at(2).block), ActionsOf(experts));
  EXPECT_EQ(TensorsOf(mixed.at(2).block), TensorsOf(experts));
}

// A dense layer has 3 h f weights, one with experts a router of 8 h and 8 x 3 x 512 h.
TEST(DenseLayers, HaveTheWeightsOfTheirKind) {
  const auto parameters = [](std::int64_t dense_layers) {
    return ParameterCount({"mixed", WithExperts(dense_layers), {}});
  };
  constexpr std::int64_t kDense = 3 * 1024 * 2816, kExperts = 8 * 1024 + 8 * 3 * 512 * 1024;
  EXPECT_EQ(parameters(0) - parameters(1), kExperts - kDense);
  EXPECT_EQ(parameters(1) - parameters(3), 2 * (kExperts - kDense));
}

TEST(DenseLayers, AreFrozenByANameOfTheirOwn) {
  const auto trained = [](const std::vector<std::string>& globs) {
    std::vector<bool> layers;
    for (const BlockRun& run : Build({"mixed", WithExperts(1), globs}, WorkedPartition(1, false))) {
      layers.push_back(std::ranges::any_of(run.block.parameters, &Parameter::trainable));
    }
    return layers;
  };
  EXPECT_EQ(trained({"layer.*"}), (std::vector{false, false, true, false}));
  EXPECT_EQ(trained({"dense.*"}), (std::vector{false, true, false, false}));
  EXPECT_EQ(trained({"*layer.*"}), (std::vector{false, true, true, false}));
}

TEST(DenseLayers, OfAJobNeedTheWidthOfTheirFeedForwardPart) {
  const std::string experts = "network={layers: 2, hidden: 64, heads: 4, vocabulary: 256, experts: {count: 4, ffn: 32";
  EXPECT_TRUE(Parse(SmallJob(), {experts + "}}"}).ok()) << "no layer has one";
  EXPECT_THAT(Refusal(SmallJob(), {experts + ", dense_layers: 1}}"}),
              AllOf(HasSubstr("lacks 'ffn'"), HasSubstr("experts.dense_layers"), HasSubstr("set network.ffn")));
}

TEST(DenseLayers, RefuseWhatDoesNotFit) {
  const auto refusal = [](const Decoder& decoder, std::int64_t tp) {
    Partition partition = WorkedPartition(tp, tp > 1);
    partition.etp = tp;
    return Refusal({"mixed", decoder, {}}, partition);
  };
  EXPECT_THAT(refusal(WithExperts(4), 1), HasSubstr("experts.dense_layers below the 4 layers"));
  EXPECT_THAT(refusal(WithExperts(-1), 1), HasSubstr("experts.dense_layers between"));
  Decoder odd = WithExperts(1);
  odd.ffn = 2815;
  EXPECT_THAT(refusal(odd, 2), HasSubstr("ffn (2815)"));
  Decoder none = WithExperts(1);
  none.experts.count = 0;
  EXPECT_THAT(refusal(none, 1), HasSubstr("there are none"));
}

}  // namespace
}  // namespace tidemark::network_dense_layers_test
