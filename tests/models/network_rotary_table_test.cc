// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/models/network_fixture.h"

// torchtitan's RoPE.cache (models/common/rope.py) of the worked network: two sequences of 2,048 tokens, heads of 64. A
// row of ComplexRoPE has 32 complex64, 256 bytes, one of CosSinRoPE 64 cosines and 64 sines, 512.

namespace tidemark::network_rotary_table_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Table = Decoder::RotaryTable;

Network WithTable(Table table) {
  Network network = WorkedNetwork();
  std::get<Decoder>(network.shape).rotary_table = table;
  return network;
}

Partition Apart(std::int64_t tp = 1) {
  Partition partition = WorkedPartition(tp, tp > 1);
  partition.fused_rope = false;
  return partition;
}

Block Layer(Table table, const Partition& partition) { return Build(WithTable(table), partition).at(1).block; }

std::int64_t BytesOf(const Constant& constant) { return (SizeOf(constant.dtype) * constant.elements).count(); }

const Calculate& ActionOf(const std::vector<Action>& pass, const std::string& name) {
  for (const Action& action : pass) {
    const auto* calculate = std::get_if<Calculate>(&action);
    if (calculate != nullptr && calculate->name == name) {
      return *calculate;
    }
  }
  ADD_FAILURE() << "no action " << name;
  return std::get<Calculate>(pass.front());
}

TEST(NetworkRotaryTable, IsEachLayersAndOfAllPositionsOfASequence) {
  for (const auto& [table, bytes] : {std::pair{Table::pairs, 2'048 * 256}, {Table::elements, 2'048 * 512}}) {
    const std::vector<BlockRun> runs = Build(WithTable(table), Apart());
    EXPECT_TRUE(runs.at(0).block.constants.empty());
    ASSERT_EQ(runs.at(1).block.constants.size(), 1U);
    EXPECT_EQ(runs.at(1).block.constants[0].name, "rotary_table");
    EXPECT_EQ(BytesOf(runs.at(1).block.constants[0]), bytes);
    EXPECT_TRUE(runs.at(2).block.constants.empty());
  }
  EXPECT_TRUE(Layer(Table::none, Apart()).constants.empty());
}

// 4,096 tokens of the microbatch, in one tensor that both rotations read.
TEST(NetworkRotaryTable, GivesRowsOfTheTokensThatTheBackwardPassReadsAgain) {
  for (const auto& [table, bytes] : {std::pair{Table::pairs, 4'096 * 256}, {Table::elements, 4'096 * 512}}) {
    for (const std::int64_t tp : {1, 2}) {
      const Block layer = Layer(table, Apart(tp));
      EXPECT_EQ(Saved(layer).at("rotary_rows"), bytes);
      for (const char* name : {"rope.q.backward", "rope.k.backward"}) {
        EXPECT_EQ(layer.tensors.at(ActionOf(layer.backward, name).reads.back().index).name, "rotary_rows");
      }
    }
  }
  EXPECT_EQ(Saved(Layer(Table::none, Apart())).count("rotary_rows"), 0U);
  const Block layer = Layer(Table::pairs, Apart());
  EXPECT_THAT(Between(layer.forward, "wq.forward", "wk.forward"),
              ElementsAre("wq.forward", "rotary_rows.forward", "rope.q.forward", "wk.forward"));
  EXPECT_EQ(ActionOf(layer.forward, "rotary_rows.forward").constants.size(), 1U);
}

TEST(NetworkRotaryTable, IsReadByWhatIsFused) {
  Partition fused = Apart();
  fused.fused_rope = true;
  const Block layer = Layer(Table::elements, fused);
  EXPECT_EQ(BytesOf(layer.constants.at(0)), 2'048 * 512);
  EXPECT_EQ(Saved(layer), Saved(Layer(Table::none, fused)));
  EXPECT_EQ(ActionOf(layer.forward, "rope.forward").constants.size(), 1U);
  EXPECT_EQ(ActionOf(layer.backward, "rope.backward").constants.size(), 1U);
}

// Ranks of a ring have half of the tokens each and the whole table.
TEST(NetworkRotaryTable, IsWholeWhereRanksShareSequences) {
  Partition ring = Apart();
  ring.cp = 2;
  ring.sequence_length = 1'024;
  const Block layer = Layer(Table::pairs, ring);
  EXPECT_EQ(BytesOf(layer.constants.at(0)), 2'048 * 256);
  EXPECT_EQ(Saved(layer).at("rotary_rows"), 2'048 * 256);
}

TEST(NetworkRotaryTable, IsThatOfTheLongestSequence) {
  Partition shorter = Apart();
  shorter.sequence_length = 512;
  shorter.longest_sequence = 2'048;
  EXPECT_EQ(BytesOf(Layer(Table::pairs, shorter).constants.at(0)), 2'048 * 256);
}

// DeepSeek V3's heads have 64 numbers that are rotated, of 192; here 32 of 64.
TEST(NetworkRotaryTable, OfLatentAttentionHasRowsOfWhatIsRotated) {
  Network network = WithTable(Table::pairs);
  auto& decoder = std::get<Decoder>(network.shape);
  decoder.kv_heads = decoder.heads;
  decoder.latent = {.kv_lora_rank = 128, .q_lora_rank = 0, .rope_head_size = 32, .value_head_size = 32};
  Partition partition = Apart();
  const Block apart = Build(network, partition).at(1).block;
  EXPECT_EQ(BytesOf(apart.constants.at(0)), 2'048 * 128);
  EXPECT_EQ(Saved(apart).at("rotary_rows"), 4'096 * 128);
  partition.fused_rope = true;
  const Block fused = Build(network, partition).at(1).block;
  EXPECT_EQ(Saved(fused).count("rotary_rows"), 0U);
  for (const char* name : {"rope.q.forward", "latent_heads.forward"}) {
    EXPECT_EQ(ActionOf(fused.forward, name).constants.size(), 1U) << name;
  }
  EXPECT_EQ(ActionOf(fused.backward, "latent_heads.backward").constants.size(), 1U);
}

TEST(NetworkRotaryTable, NeedsARotationOfPairs) {
  Network network = WithTable(Table::pairs);
  std::get<Decoder>(network.shape).rope = false;
  EXPECT_THAT(Refusal(network, Apart()), HasSubstr("network.rotary_table"));
  std::get<Decoder>(network.shape).rope = true;
  std::get<Decoder>(network.shape).head_size = 63;
  EXPECT_THAT(Refusal(network, Apart()), HasSubstr("head_size"));
  auto& decoder = std::get<Decoder>(network.shape);
  decoder.kv_heads = decoder.heads;
  decoder.latent = {.kv_lora_rank = 128, .q_lora_rank = 0, .rope_head_size = 32, .value_head_size = 32};
  EXPECT_EQ(BytesOf(Build(network, Apart()).at(1).block.constants.at(0)), 2'048 * 128);  // 32 of 63
}

}  // namespace
}  // namespace tidemark::network_rotary_table_test
