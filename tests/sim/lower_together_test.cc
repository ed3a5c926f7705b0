// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/lower/stage.h"
#include "sim/program/text.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::lower_together_test {
namespace {

Job Pipeline(const std::string& strategy) {
  Job job = OracleJob(strategy, 8);
  std::get<Decoder>(job.network.shape).layers = 8;
  job.layout.pp = 4;
  return job;
}

std::string TextOf(const Job& job) {
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  std::string text;
  for (const Program& role : step->roles) {
    text += Print(role);
  }
  return text;
}

/// Null: there is none.
const StageRun* KeptRun(const Stage& stage) {
  const auto kept = std::ranges::find(stage.runs, true, &StageRun::stays_gathered);
  return kept == stage.runs.end() ? nullptr : &*kept;
}

// What a stage does to its blocks may not show in another stage, so sharing is only sound while nobody writes to them.
TEST(Lowering, StagesInTheMiddleOfAPipelineHoldTheSameBlocks) {
  Job job = Pipeline("megatron");
  const std::vector<Stage> stages = *CutIntoStages(job);
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(&stages[1].BlockAt(0), &stages[2].BlockAt(1));
  EXPECT_EQ(&stages[0].BlockAt(1), &stages[3].BlockAt(0));
  EXPECT_NE(&stages[0].BlockAt(0), &stages[0].BlockAt(1)) << "the embedding";
}

// Both are blocks of the same layers, but the name tells in which of them the gathered weights stay.
TEST(Lowering, LayersThatKeepTheirWeightsAreARunOfTheirOwnOnEveryStage) {
  Job job = Pipeline("fsdp2-scatter-each");
  job.axes.shard.gathered_layers = 1;
  const std::vector<Stage> stages = *CutIntoStages(job);
  for (const Stage& stage : stages) {
    const StageRun* const kept = KeptRun(stage);
    ASSERT_NE(kept, nullptr) << stage.index;
    EXPECT_EQ(kept->count, 1) << "of two layers";
    EXPECT_EQ(kept->block().name, "kept layer");
    EXPECT_EQ(&kept->block(), &KeptRun(stages[0])->block());
  }
}

TEST(Lowering, TheLastLayersKeepTheirWeightsWhateverTheirKind) {
  Job job = OracleJob("fsdp2-scatter-each", 2);
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 6;
  decoder.experts = {.count = 8, .ffn = 512, .dense_layers = 4};
  job.axes.shard.gathered_layers = 3;
  const Result<std::vector<Stage>> stages = CutIntoStages(job);
  ASSERT_TRUE(stages.ok()) << stages.error().Text();
  std::vector<std::pair<std::string, std::int64_t>> runs;
  for (const StageRun& run : stages->front().runs) {
    runs.emplace_back(run.block().name, run.count);
    EXPECT_EQ(run.stays_gathered, run.block().name.starts_with("kept ")) << run.block().name;
  }
  EXPECT_EQ(runs, (decltype(runs){
                      {"embedding", 1}, {"dense.layer", 3}, {"kept dense.layer", 1}, {"kept layer", 2}, {"head", 1}}));
}

TEST(Lowering, ThreadsThatLowerAtOnceWriteWhatEachWouldAlone) {
  const std::vector<std::string> strategies = {"megatron", "nanotron", "ddp-last", "megatron"};
  std::vector<std::string> together(strategies.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = TextOf(Pipeline(strategies[i])); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    EXPECT_EQ(together[i], TextOf(Pipeline(strategies[i]))) << strategies[i];
  }
}

}  // namespace
}  // namespace tidemark::lower_together_test
