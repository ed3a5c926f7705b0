// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/models/network_fixture.h"

namespace tidemark::network_table_test {
namespace {

TEST(TableNetwork, IsOneBlockARowWithItsBytesPerSample) {
  TableRow row;
  row.name = "stem";
  row.count = 3;
  row.parameters = 1728;
  row.saved_bytes = 1000;
  row.transient_bytes = 10;
  row.forward_flops = 500;
  row.backward_ns = 7;
  const Network network{"table", Table{{row}}, {}};
  Partition p;
  p.micro_batch_size = 4;
  const auto runs = Build(network, p);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].count, 3);
  const Block& block = runs[0].block;
  EXPECT_EQ(SavedTotal(block), 4 * 1000);
  EXPECT_EQ(PeaksOf(block, Category::activation).all, 4 * 1010);
  EXPECT_EQ(ParameterCount(network), 3 * 1728);
  EXPECT_FALSE(block.input.valid());
  const auto& forward = std::get<Tabulated>(std::get<Calculate>(block.forward.at(0)).op);
  EXPECT_EQ(forward.flops, 4 * 500);
  EXPECT_EQ(forward.nanoseconds, 0);
  EXPECT_EQ(forward.bytes_moved, 4 * 1010 + 2 * 1728);  // what it writes, and bf16 weights
  const auto& backward = std::get<Tabulated>(std::get<Calculate>(block.backward.at(0)).op);
  EXPECT_EQ(backward.nanoseconds, 4 * 7);
}

TEST(TableNetwork, MayNeedOtherBytesBesideItsBackwardPass) {
  TableRow row;
  row.name = "stem";
  row.saved_bytes = 1000;
  row.transient_bytes = 10;
  const auto moved = [](const TableRow& of, bool backward) {
    const Block block = Build({"table", Table{{of}}, {}}, Partition{})[0].block;
    const auto& pass = backward ? block.backward : block.forward;
    return std::get<Tabulated>(std::get<Calculate>(pass.at(0)).op).bytes_moved;
  };
  EXPECT_EQ(moved(row, true), 1010);
  row.backward_transient_bytes = 0;
  EXPECT_EQ(moved(row, true), 1000);
  row.backward_transient_bytes = 400;
  EXPECT_EQ(moved(row, true), 1400);
  EXPECT_EQ(moved(row, false), 1010);
}

TEST(TableNetwork, KeepsFrozenParametersBesideTrainedOnes) {
  TableRow row;
  row.name = "layer";
  row.parameters = 10;
  row.frozen_parameters = 1000;
  const Network network{"table", Table{{row}}, {}};
  EXPECT_EQ(ParameterCount(network), 1010);
  const Block block = Build(network, Partition{})[0].block;
  ASSERT_EQ(block.parameters.size(), 2u);
  EXPECT_TRUE(block.parameters[0].trainable);
  EXPECT_FALSE(block.parameters[1].trainable);
  EXPECT_EQ(block.parameters[1].elements, 1000);
  const auto& forward = std::get<Calculate>(block.forward.at(0));
  EXPECT_EQ(forward.parameters.size(), 2u);
  EXPECT_EQ(std::get<Tabulated>(forward.op).bytes_moved, 2 * 1010);
  const auto& backward = std::get<Calculate>(block.backward.at(0));
  ASSERT_EQ(backward.gradients.size(), 1u);
  EXPECT_EQ(backward.gradients[0].index, 0u);
  EXPECT_EQ(std::get<Tabulated>(backward.op).bytes_moved, 2 * 10 + 2 * 10 + 2 * 1000);  // weights, gradients, frozen
}

TEST(TableNetwork, DividesBySamplesAndTakesABegunByteAsOne) {
  TableRow row;
  row.name = "stem";
  row.parameters = 10;
  row.saved_bytes = 1000;
  row.forward_ns = 90;
  Partition p;
  for (const auto& [micro_batch_size, saved, time] :
       {std::tuple(3, 1000, 90), std::tuple(6, 2000, 180), std::tuple(4, 1334, 120)}) {
    p.micro_batch_size = micro_batch_size;
    const Block block = Build({"table", Table{{row}, 3}, {}}, p)[0].block;
    EXPECT_EQ(SavedTotal(block), saved);
    EXPECT_EQ(block.parameters.at(0).elements, 10);
    EXPECT_EQ(std::get<Tabulated>(std::get<Calculate>(block.forward.at(0)).op).nanoseconds, time);
  }
  EXPECT_NE(Refusal({"table", Table{{row}, 0}, {}}, p).find("table_samples"), std::string::npos);
}

TEST(TableNetwork, RefusesTensorParallelismNegativeNumbersAndNoRows) {
  EXPECT_NE(Refusal({"table", Table{}, {}}, Partition{}).find("at least one row"), std::string::npos);
  TableRow row;
  row.name = "stem";
  Partition p;
  p.tp = 2;
  EXPECT_NE(Refusal({"table", Table{{row}}, {}}, p).find("layout.tp"), std::string::npos);
  row.saved_bytes = -1;
  EXPECT_NE(Refusal({"table", Table{{row}}, {}}, Partition{}).find("saved_bytes"), std::string::npos);
  row.saved_bytes = std::int64_t{1} << 50;
  p.tp = 1;
  p.micro_batch_size = 1 << 20;
  EXPECT_NE(Refusal({"table", Table{{row}}, {}}, p).find("2^60"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::network_table_test
