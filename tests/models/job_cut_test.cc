// SPDX-License-Identifier: Apache-2.0
#include "models/job/cut.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/models/network_fixture.h"

// How the layers of a network come to pipeline stages, also where they are of two kinds.

namespace tidemark::job_cut_test {
namespace {

using Runs = std::vector<std::pair<std::string, std::int64_t>>;

Job Pipeline(std::int64_t layers, std::int64_t dense_layers, std::int64_t stages) {
  Job job;
  job.network = WorkedNetwork();
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = layers;
  decoder.experts = {.count = 8, .ffn = 512, .dense_layers = dense_layers};
  job.sequence_length = 64;
  job.layout.pp = stages;
  return job;
}

Runs RunsOf(const StageBlocks& stage) {
  Runs runs;
  for (const BlockRun& run : stage.runs) {
    runs.emplace_back(run.block.name, run.count);
  }
  return runs;
}

std::vector<StageBlocks> Cut(const Job& job) {
  auto stages = CutIntoBlocks(job);
  EXPECT_TRUE(stages.ok()) << stages.error().Text();
  return stages.ok() ? *std::move(stages) : std::vector<StageBlocks>();
}

TEST(Cut, StagesGetTheLayersOfBothKindsInTheirOrder) {
  const std::vector<StageBlocks> stages = Cut(Pipeline(8, 3, 4));
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(RunsOf(stages[0]), (Runs{{"embedding", 1}, {"dense.layer", 2}}));
  EXPECT_EQ(RunsOf(stages[1]), (Runs{{"dense.layer", 1}, {"layer", 1}}));
  EXPECT_EQ(RunsOf(stages[2]), (Runs{{"layer", 2}}));
  EXPECT_EQ(RunsOf(stages[3]), (Runs{{"layer", 2}, {"head", 1}}));
}

TEST(Cut, LayersAreNumberedThroughAllStages) {
  const std::vector<StageBlocks> stages = Cut(Pipeline(8, 3, 4));
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[0].first_layer, (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(stages[1].first_layer, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(stages[2].first_layer, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(stages[3].first_layer, (std::vector<std::int64_t>{6, 0}));
}

TEST(Cut, TheLastLayersOfAStageStayGatheredWhateverTheirKind) {
  Job job = Pipeline(8, 3, 2);
  job.axes.shard.gathered_layers = 3;
  const Result<NetworkCut> cut = CutNetwork(job);
  ASSERT_TRUE(cut.ok()) << cut.error().Text();
  EXPECT_EQ(cut->layers, (std::vector<std::vector<RunPart>>{{{1, 3, 2}, {2, 1, 1}}, {{2, 4, 3}}}));
  const std::vector<StageBlocks> stages = Cut(job);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].first_gathered, (std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_EQ(stages[1].first_gathered, (std::vector<std::int64_t>{5, 0}));
  job.axes.shard.gathered_layers = 99;
  EXPECT_EQ(CutNetwork(job)->layers, (std::vector<std::vector<RunPart>>{{{1, 3, 3}, {2, 1, 1}}, {{2, 4, 4}}}));
}

TEST(Cut, OneStageHasThemAll) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {{8, 1}, {8, 5}, {8, 7}, {2, 1}};
  for (const auto& [layers, dense] : sizes) {  // whichever run is the longer one, and where neither is
    const std::vector<StageBlocks> stages = Cut(Pipeline(layers, dense, 1));
    ASSERT_EQ(stages.size(), 1u);
    EXPECT_EQ(RunsOf(stages[0]),
              (Runs{{"embedding", 1}, {"dense.layer", dense}, {"layer", layers - dense}, {"head", 1}}));
    EXPECT_EQ(stages[0].first_layer, (std::vector<std::int64_t>{0, 0, dense, 0}));
  }
}

TEST(Cut, LayersPerStageCountsBothKinds) {
  Job job = Pipeline(8, 3, 3);
  EXPECT_FALSE(CutNetwork(job).ok());
  job.layout.layers_per_stage = {4, 3, 1};
  const std::vector<StageBlocks> stages = Cut(job);
  ASSERT_EQ(stages.size(), 3u);
  EXPECT_EQ(RunsOf(stages[0]), (Runs{{"embedding", 1}, {"dense.layer", 3}, {"layer", 1}}));
  EXPECT_EQ(RunsOf(stages[1]), (Runs{{"layer", 3}}));
  EXPECT_EQ(RunsOf(stages[2]), (Runs{{"layer", 1}, {"head", 1}}));
}

TEST(Cut, LayersOfOneKindAreOneRun) {
  const Result<NetworkCut> cut = CutNetwork(Pipeline(8, 0, 2));
  ASSERT_TRUE(cut.ok()) << cut.error().Text();
  EXPECT_EQ(cut->layers_begin, 1u);
  EXPECT_EQ(cut->layers_end, 2u);
  EXPECT_EQ(cut->layers, (std::vector<std::vector<RunPart>>{{{1, 4}}, {{1, 4}}}));
}

}  // namespace
}  // namespace tidemark::job_cut_test
