// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "sim/lower/lower.h"
#include "tests/sim/oracle_experts.h"

namespace tidemark::sharding_test {
namespace {

using Shardings = std::map<std::string, std::string>;

/// Of the weights, gradients and optimizer state of all roles, by buffer.
Shardings ShardingsIn(const Job& job, StepKind step, std::set<Category> categories) {
  const Result<StepProgram> program = Lower(job, step);
  EXPECT_TRUE(program.ok()) << job.strategy << ": " << program.error().Text();
  const std::vector<std::vector<std::string>> all = ShardingsOf(job, *program);
  Shardings shardings;
  for (std::size_t role = 0; role < all.size(); ++role) {
    for (std::size_t i = 0; i < all[role].size(); ++i) {
      const Buffer& buffer = program->roles[role].buffers[i];
      if (categories.contains(buffer.category)) {
        shardings.emplace(buffer.name, all[role][i]);
      }
    }
  }
  return shardings;
}

Job JobOf(const std::string& strategy, std::int64_t microbatches) {
  Job job = OracleJob(strategy, microbatches);
  if (strategy == "hsdp") {
    job.axes.shard.replicas = 2;
  }
  return job;
}

const std::set<Category> kState = {Category::parameter, Category::gradient, Category::accumulator, Category::optimizer};

/// Strategies by what each of their 4 ranks keeps of the optimizer's state, as their systems' papers say.
const std::set<std::string> kOptimizerInParts = {"fsdp1",
                                                 "fsdp1-no-sync",
                                                 "fsdp2-scatter-each",
                                                 "fsdp2-defer",
                                                 "fsdp2-keep-after-backward",
                                                 "fsdp2-keep-all",
                                                 "alpa-zero2",
                                                 "colossalai-zero1",
                                                 "colossalai-zero2",
                                                 "colossalai-gemini",
                                                 "deepspeed-zero1",
                                                 "deepspeed-zero2",
                                                 "deepspeed-zero3",
                                                 "deepspeed-bf16",
                                                 "deepspeed-coalesce",
                                                 "megatron-dist-opt"};
/// And of the weights, outside of the passes that need them.
const std::set<std::string> kWeightsInParts = {
    "fsdp1",          "fsdp1-no-sync",     "fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-after-backward",
    "fsdp2-keep-all", "colossalai-gemini", "deepspeed-zero3"};

TEST(Sharding, ofExpertsIsOverRanksOfTheirOwn) {
  const Job job = OracleExperts("megatron-dist-opt", 4);
  Shardings state = ShardingsIn(job, StepKind::steady, kState);
  EXPECT_EQ(state["weight of layer.experts_up"], "1/4 over ep");
  EXPECT_EQ(state["weight of layer.wq"], "whole");
  EXPECT_EQ(state["main gradient of layer.experts_down"], "1/4 over ep");
  std::set<std::string> of_optimizer;
  for (const auto& [buffer, sharding] : ShardingsIn(job, StepKind::steady, {Category::optimizer})) {
    of_optimizer.insert(sharding);
  }
  EXPECT_EQ(of_optimizer, (std::set<std::string>{"1/8 over dp", "1/4 over ep, 1/2 over edp"}));
}

// FSDP2's, whose kernels over lists see the moments of a layer together.
TEST(Sharding, ofALayersStateIsThatOfItsExpertsAndOfTheRest) {
  Job job = OracleExperts("fsdp2-scatter-each", 4);
  job.axes.loss_scale = LossScale::global_tokens;
  job.axes.optimizer_step.kernel = OptimizerStep::Kernel::foreach_;
  Shardings state = ShardingsIn(job, StepKind::steady, kState);
  EXPECT_EQ(state["shard of layer.wq"], "1/8 over dp");
  EXPECT_EQ(state["shard of layer.experts_up"], "1/4 over ep, 1/2 over edp");
  EXPECT_EQ(state["sharded gradient of layer"], "1/8 over dp");
  EXPECT_EQ(state["sharded gradient of experts of layer"], "1/4 over ep, 1/2 over edp");
  EXPECT_EQ(state["moments of layer"], "1/8 over dp; experts 1/4 over ep, 1/2 over edp");
  job.network.trainable = {"layer.wq"};
  EXPECT_EQ(ShardingsIn(job, StepKind::steady, kState)["moments of layer"], "1/8 over dp");
  job.network.trainable = {"layer.experts_*"};
  EXPECT_EQ(ShardingsIn(job, StepKind::steady, kState)["moments of layer"], "1/4 over ep, 1/2 over edp");
}

TEST(Sharding, ofTheOptimizersStateIsThatOfEachStrategy) {
  for (const Strategy& strategy : AllStrategies()) {
    const std::string name = strategy.defaults.name;
    const std::string part = name == "hsdp"                     ? "1/2 over dp"
                             : kOptimizerInParts.contains(name) ? "1/4 over dp"
                                                                : "whole";
    const Shardings state = ShardingsIn(JobOf(name, 2), StepKind::steady, {Category::optimizer});
    EXPECT_FALSE(state.empty()) << name;
    for (const auto& [buffer, sharding] : state) {
      const bool update = buffer.starts_with("update of");  // optax's update is a whole tensor of the parameter's shape
      EXPECT_EQ(sharding, update ? "whole" : part) << name << ": " << buffer;
    }
  }
}

TEST(Sharding, ofWeightsThatStayIsThatOfEachStrategy) {
  for (const Strategy& strategy : AllStrategies()) {
    const std::string name = strategy.defaults.name;
    const Job job = JobOf(name, 2);
    const Result<StepProgram> program = Lower(job, StepKind::steady);
    ASSERT_TRUE(program.ok()) << name;
    const std::vector<std::string> shardings = ShardingsOf(job, *program)[0];
    for (std::size_t i = 0; i < shardings.size(); ++i) {
      const Buffer& buffer = program->roles[0].buffers[i];
      if (buffer.category == Category::parameter && buffer.resident) {
        const bool persists = buffer.name.starts_with("gathered ");  // ZeRO-3 leaves small ones whole
        const std::string part = persists                         ? "whole"
                                 : name == "hsdp"                 ? "1/2 over dp"
                                 : kWeightsInParts.contains(name) ? "1/4 over dp"
                                                                  : "whole";
        EXPECT_EQ(shardings[i], part) << name << ": " << buffer.name;
      }
    }
  }
}

// A layer's table is no part of its weights, whatever becomes of these; a microbatch's tokens are a rank's own.
TEST(Sharding, ofTablesOfLayersIsNone) {
  for (const char* strategy : {"ddp-last", "fsdp2-scatter-each", "megatron", "deepspeed-zero3"}) {
    for (const std::int64_t tp : {1, 2}) {
      Job job = JobOf(strategy, 2);
      job.layout.tp = tp;
      std::get<Decoder>(job.network.shape).rotary_table = Decoder::RotaryTable::elements;
      const Shardings inputs = ShardingsIn(job, StepKind::steady, {Category::input});
      EXPECT_EQ(inputs.at("layer.rotary_table"), "whole") << strategy;
      EXPECT_EQ(inputs.at("embedding.ids"), "own") << strategy;
    }
  }
}

TEST(Sharding, ofGradientsTellsWhatIsScatteredFromWhatWaits) {
  const Shardings defer = ShardingsIn(JobOf("fsdp2-defer", 4), StepKind::steady, kState);
  EXPECT_EQ(defer.at("accumulated gradient of layer.wq"), "whole");
  EXPECT_EQ(defer.at("sharded gradient of layer"), "1/4 over dp");
  EXPECT_EQ(defer.at("unsharded layer.wq"), "whole");
  const Shardings hybrid = ShardingsIn(JobOf("hsdp", 4), StepKind::steady, kState);
  EXPECT_EQ(hybrid.at("sharded gradient of layer"), "1/2 over dp");
  const Shardings two = ShardingsIn(JobOf("deepspeed-zero2", 4), StepKind::steady, kState);
  EXPECT_EQ(two.at("gradient of layer.wq"), "whole");
  EXPECT_EQ(two.at("averaged gradients of own part"), "1/4 over dp");
  const Shardings three = ShardingsIn(JobOf("deepspeed-zero3", 4), StepKind::steady, kState);
  EXPECT_EQ(three.at("gradient partitions of layer"), "1/4 over dp");
  EXPECT_EQ(ShardingsIn(JobOf("megatron-dist-opt", 4), StepKind::steady, kState).at("main gradient of layer.down"),
            "whole");
}

TEST(Sharding, ofTensorParallelRanksCutsMatricesAndLeavesNormsWhole) {
  Job job = JobOf("megatron-dist-opt", 2);
  job.layout.tp = 2;
  const Shardings cut = ShardingsIn(job, StepKind::steady, kState);
  EXPECT_EQ(cut.at("weight of layer.down"), "1/2 over tp");
  EXPECT_EQ(cut.at("weight of layer.norm1"), "whole");
  for (const auto& [buffer, sharding] : cut) {
    if (buffer.starts_with("moments")) {
      EXPECT_EQ(sharding, "1/2 over tp, 1/4 over dp") << buffer;
    }
  }
}

TEST(Sharding, ofARankWithSeveralStagesIsThatOfEachStage) {
  Job job = JobOf("megatron-dist-opt", 4);
  job.layout.pp = 2;
  job.layout.vpp = 2;
  job.schedule = Schedule::interleaved;
  for (const auto& [buffer, sharding] :
       ShardingsIn(job, StepKind::steady, {Category::parameter, Category::accumulator})) {
    EXPECT_EQ(sharding, "whole") << buffer;
  }
  for (const auto& [buffer, sharding] : ShardingsIn(job, StepKind::steady, {Category::optimizer})) {
    EXPECT_EQ(sharding, "1/4 over dp") << buffer;
  }
}

TEST(Sharding, isWholeForOneRankAndNeverUnknown) {
  for (const Strategy& strategy : AllStrategies()) {
    for (const std::int64_t ranks : {1, 3, 4}) {
      for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::sgd_momentum}) {
        for (const StepKind step : {StepKind::first, StepKind::steady}) {
          Job job = OracleJob(strategy.defaults.name, 2);
          job.layout.dp = ranks;
          job.optimizer = optimizer;
          if (strategy.defaults.name == "hsdp") {
            job.axes.shard.replicas = ranks;
          }
          if (!strategy.Accept(job).ok()) {
            continue;
          }
          for (const auto& [buffer, sharding] : ShardingsIn(job, step, kState)) {
            const bool padding = buffer.starts_with("padding ");  // is no part of anything
            EXPECT_TRUE(padding || sharding != "part")
                << strategy.defaults.name << ", " << ranks << " ranks: " << buffer;
            EXPECT_TRUE(ranks > 1 || sharding == "whole")
                << strategy.defaults.name << ": " << buffer << " " << sharding;
          }
        }
      }
    }
  }
}

// Buckets of one norm each are mostly padding: what a rank keeps of them is more than a share of the numbers.
TEST(Sharding, ofPaddedRangesIsWhatTheyDeclare) {
  Job job = OracleJob("megatron-dist-opt", 1);
  job.layout.dp = 8;
  job.axes.sync.bucket_elements = 72;
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 3;
  decoder.hidden = 16;
  decoder.ffn = 80;
  decoder.heads = decoder.kv_heads = 2;
  decoder.head_size = 8;
  decoder.vocabulary = 754;
  for (const auto& [buffer, sharding] : ShardingsIn(job, StepKind::steady, {Category::optimizer})) {
    EXPECT_EQ(sharding, "1/8 over dp") << buffer;
  }
}

// Small buckets end anywhere in a layer, so that each layer's slices lie in other places of families that have one for
// every layer: counting places that nobody uses would find more than there is.
TEST(Sharding, ofSlicesInPlacesThatOnlySomeLayersUse) {
  for (const std::int64_t bucket : {3000000, 5000000, 9000000}) {
    Job job = OracleJob("colossalai-zero2", 4);
    std::get<Decoder>(job.network.shape).layers = 9;
    job.axes.sync.bucket_elements = bucket;
    const Shardings gradients = ShardingsIn(job, StepKind::steady, {Category::gradient});
    int stored = 0;
    for (const auto& [buffer, sharding] : gradients) {
      if (buffer.starts_with("stored gradients")) {
        ++stored;
        EXPECT_EQ(sharding, "1/4 over dp") << buffer << " in buckets of " << bucket;
      }
    }
    EXPECT_GT(stored, 0);
  }
}

TEST(Sharding, ofActivationsAndBucketsOfNoBlockIsTheRanksOwn) {
  const Shardings own =
      ShardingsIn(JobOf("deepspeed-zero1", 2), StepKind::steady, {Category::activation, Category::logits});
  ASSERT_FALSE(own.empty());
  for (const auto& [buffer, sharding] : own) {
    EXPECT_EQ(sharding, "own") << buffer;
  }
}

}  // namespace
}  // namespace tidemark::sharding_test
