// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <thread>
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
    ASSERT_TRUE(stage.gathered_run.has_value()) << stage.index;
    const StageRun& kept = stage.runs[*stage.gathered_run];
    EXPECT_EQ(kept.count, 1) << "of two layers";
    EXPECT_EQ(kept.block().name, "kept layer");
    EXPECT_EQ(&kept.block(), &stages[0].runs[*stages[0].gathered_run].block());
  }
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
