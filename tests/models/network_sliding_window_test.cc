// SPDX-License-Identifier: Apache-2.0
// Windows of attention: what they do to a layer's tables, and where they are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "tests/models/network_fixture.h"

namespace tidemark::network_sliding_window_test {
namespace {

using ::testing::HasSubstr;

Network WithWindow(std::int64_t window, std::int64_t every = 0) {
  Network network = WorkedNetwork();
  auto& decoder = std::get<Decoder>(network.shape);
  decoder.layers = 8;
  decoder.sliding_window = window;
  decoder.full_attention_every = every;
  return network;
}

Block Layer(const Network& network) { return Build(network, WorkedPartition(1, false)).at(1).block; }

std::vector<Attention> AttentionsOf(const Block& block) {
  std::vector<Attention> found;
  for (const std::vector<Action>* pass : {&block.forward, &block.backward}) {
    for (const Action& action : *pass) {
      const auto* calculate = std::get_if<Calculate>(&action);
      if (const auto* attention = calculate == nullptr ? nullptr : std::get_if<Attention>(&calculate->op)) {
        found.push_back(*attention);
      }
    }
  }
  return found;
}

/// Of all its actions in order, attention as if without a window.
std::vector<Operator> OperatorsOf(const Block& block) {
  std::vector<Operator> found;
  for (const std::vector<Action>* pass : {&block.forward, &block.backward}) {
    for (const Action& action : *pass) {
      if (const auto* calculate = std::get_if<Calculate>(&action)) {
        const auto* attention = std::get_if<Attention>(&calculate->op);
        found.push_back(attention == nullptr ? calculate->op : attention->Full());
      }
    }
  }
  return found;
}

TEST(NetworkSlidingWindow, ChangeAttentionAndNothingElse) {
  const std::int64_t sequence = WorkedPartition(1, false).sequence_length;
  const Block without = Layer(WithWindow(0)), with = Layer(WithWindow(sequence / 4, 3));
  EXPECT_TRUE(OperatorsOf(with) == OperatorsOf(without));
  EXPECT_EQ(SavedTotal(with), SavedTotal(without));
  EXPECT_EQ(PeaksOf(with, Category::activation).all, PeaksOf(without, Category::activation).all);
  ASSERT_EQ(AttentionsOf(with).size(), 2U);
  for (const Attention& op : AttentionsOf(with)) {
    EXPECT_EQ(op.window, sequence / 4);
    EXPECT_EQ(op.full_layers, 2);  // the third and the sixth of eight
    EXPECT_EQ(op.windowed_layers, 6);
  }
}

TEST(NetworkSlidingWindow, OfAllTokensAreNone) {
  const std::int64_t sequence = WorkedPartition(1, false).sequence_length;
  for (const Attention& op : AttentionsOf(Layer(WithWindow(sequence)))) {
    EXPECT_EQ(op, op.Full());
  }
  EXPECT_EQ(AttentionsOf(Layer(WithWindow(sequence - 1))).front().window, sequence - 1);
}

TEST(NetworkSlidingWindow, AreRefusedWhereTheyAreNotModelled) {
  const auto refusal = [](const Network& network, const Partition& partition) {
    const auto blocks = BuildBlocks(network, partition);
    return blocks.ok() ? std::string() : blocks.error().Text();
  };
  const auto on_both_sides = [](std::int64_t window) {
    Network network = WithWindow(window);
    std::get<Decoder>(network.shape).causal = false;
    return network;
  };
  const std::int64_t sequence = WorkedPartition(1, false).sequence_length;
  EXPECT_THAT(refusal(on_both_sides(64), WorkedPartition(1, false)), HasSubstr("attention that is not causal"));
  EXPECT_EQ(refusal(on_both_sides(sequence), WorkedPartition(1, false)), "") << "hides nothing";
  EXPECT_THAT(refusal(WithWindow(64, 1), WorkedPartition(1, false)), HasSubstr("leaves no layer its sliding_window"));
  Partition ring = WorkedPartition(1, false);
  ring.cp = 2;
  EXPECT_THAT(refusal(WithWindow(64), ring), HasSubstr("set layout.cp to 1"));
  EXPECT_THAT(refusal(WithWindow(2 * sequence - 1), ring), HasSubstr("set layout.cp to 1"));
  EXPECT_EQ(refusal(WithWindow(2 * sequence), ring), "") << "hides nothing of two ranks' tokens";
  EXPECT_EQ(refusal(WithWindow(0), ring), "");
}

}  // namespace
}  // namespace tidemark::network_sliding_window_test
