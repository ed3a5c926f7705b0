// SPDX-License-Identifier: Apache-2.0
#include "sim/matrix/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "models/findings/findings.h"
#include "models/job/fields.h"
#include "sim/strategies/strategy.h"

namespace tidemark::matrix_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<MatrixRow>& Matrix() {
  static const std::vector<MatrixRow> rows = CompatibilityMatrix(KnownStrategies());
  return rows;
}

Cell At(const std::string& strategy, const std::string& feature) {
  for (const MatrixRow& row : Matrix()) {
    for (const Cell& cell : row.cells) {
      if (row.strategy == strategy && cell.feature == feature) {
        return cell;
      }
    }
  }
  ADD_FAILURE() << "no cell " << strategy << " " << feature;
  return {};
}

TEST(Matrix, EveryFeatureIsWholeAndItsKeysExist) {
  std::set<std::string> names;
  for (const Feature& feature : ReadMatrixData().features) {
    EXPECT_TRUE(names.insert(feature.name).second) << feature.name;
    for (const std::string& text : {feature.group, feature.title, feature.paragraph, feature.hint}) {
      EXPECT_FALSE(text.empty()) << feature.name;
    }
    EXPECT_THAT(feature.link, StartsWith("https://")) << feature.name;
    EXPECT_FALSE(feature.ways.empty() && feature.facts.empty()) << feature.name;
    std::vector<std::string> settings = feature.against;
    settings.insert(settings.end(), feature.needs.begin(), feature.needs.end());
    for (const std::vector<std::string>& way : feature.ways) {
      EXPECT_FALSE(way.empty()) << feature.name;
      settings.insert(settings.end(), way.begin(), way.end());
    }
    for (const std::string& setting : settings) {
      EXPECT_EQ(JobKeys().count(setting.substr(0, setting.find('='))), 1u) << setting;
    }
  }
}

TEST(Matrix, EveryFactIsOfAKnownStrategyAndAKnownFinding) {
  for (const Feature& feature : ReadMatrixData().features) {
    for (const Fact& fact : feature.facts) {
      EXPECT_NE(FindKnownFinding(fact.finding), nullptr) << fact.finding;
      EXPECT_FALSE(fact.strategies.empty()) << feature.name;
      for (const std::string& strategy : fact.strategies) {
        EXPECT_TRUE(FindStrategy(strategy).ok()) << strategy;
      }
    }
  }
}

TEST(Matrix, HasARowForEachStrategyAndExplainsWhateverDoesNotSimplyWork) {
  const std::vector<Strategy> strategies = AllStrategies();
  ASSERT_EQ(Matrix().size(), strategies.size());
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const MatrixRow& row = Matrix()[i];
    EXPECT_EQ(row.strategy, strategies[i].defaults.name);
    ASSERT_EQ(row.cells.size(), ReadMatrixData().features.size());
    for (const Cell& cell : row.cells) {
      const bool works = cell.verdict == Verdict::works;
      EXPECT_EQ(works, cell.id.empty()) << row.strategy << " " << cell.feature;
      EXPECT_EQ(works, cell.paragraph.empty() || cell.hint.empty() || cell.link.empty())
          << row.strategy << " " << cell.feature;
      EXPECT_TRUE(cell.verdict != Verdict::changes_memory || cell.effect.starts_with("peak "))
          << row.strategy << " " << cell.feature;
    }
  }
}

// DeepSpeed engine.py no_sync at edaa7221; github.com/deepspeedai/DeepSpeed/issues/6793.
TEST(Matrix, RefusalsComeInTheRealSystemsWords) {
  const Cell cell = At("deepspeed-zero2", "defer");
  EXPECT_EQ(cell.verdict, Verdict::refused);
  EXPECT_EQ(cell.message, "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2");
  EXPECT_EQ(cell.id, "no-sync-with-partitioned-gradients");
  EXPECT_THAT(cell.link, HasSubstr("DeepSpeed/issues/6793"));
  EXPECT_EQ(At("ddp-every", "1f1b").verdict, Verdict::refused);
}

TEST(Matrix, WhatASystemDoesNotHaveAndWhatIsNotModelledAreNoRefusals) {
  EXPECT_EQ(At("jax-scan", "bucket-view").verdict, Verdict::no_such_setting);
  EXPECT_EQ(At("colossalai-zero2", "coalesce").verdict, Verdict::no_such_setting);  // not its refusal of no_sync
  EXPECT_EQ(At("fsdp1", "1f1b").verdict, Verdict::not_modelled);
  EXPECT_EQ(At("megatron", "accumulate-bf16").verdict, Verdict::not_modelled);
  EXPECT_EQ(At("nanotron", "cuda-graphs").verdict, Verdict::not_modelled);
}

// Four microbatches, each of which reduces all gradients.
TEST(Matrix, ReducingEveryMicrobatchIsToldByHowOften) {
  EXPECT_EQ(At("ddp-forward-outside", "accumulate").verdict, Verdict::does_not_defer);
  EXPECT_THAT(At("ddp-forward-outside", "accumulate").effect, StartsWith("all_reduce x 4"));
  EXPECT_THAT(At("ddp-last", "forward-outside").effect, StartsWith("all_reduce x 4"));
  EXPECT_THAT(At("fsdp2-defer", "reduce-each").effect, StartsWith("reduce_scatter x 4"));
  EXPECT_THAT(At("hsdp", "accumulate").effect, StartsWith("reduce_scatter x 4;"));  // all-reduced once
  EXPECT_EQ(At("ddp-last", "accumulate").verdict, Verdict::changes_memory);
}

// P = 110,633,984 parameters, all peaks in the loss. DDP: gradients beside the buckets while they accumulate, 2 P bytes
// (with views zeroed in place: none). FSDP2: a shard of P / 4 fp32 gradients where each microbatch is scattered,
// P whole ones where that is deferred, so that deferring costs 4 P - P bytes.
TEST(Matrix, ChangesOfThePeakAreThoseOfTheAccumulators) {
  EXPECT_THAT(At("ddp-last", "accumulate").effect, StartsWith("peak +221,267,968 bytes"));
  EXPECT_EQ(At("ddp-last", "bucket-view").verdict, Verdict::works);  // saves nothing
  EXPECT_THAT(At("ddp-last", "bucket-view-zeroed").effect, StartsWith("peak -221,267,968 bytes"));
  EXPECT_THAT(At("fsdp2-scatter-each", "accumulate").effect, StartsWith("reduce_scatter x 4; peak +110,633,984 bytes"));
  EXPECT_THAT(At("fsdp2-defer", "accumulate").effect, StartsWith("peak +442,535,936 bytes"));
  EXPECT_THAT(At("fsdp2-scatter-each", "defer").effect, StartsWith("peak +331,901,952 bytes"));
  EXPECT_THAT(At("fsdp2-defer", "accumulate-bf16").effect, StartsWith("peak -221,267,968 bytes"));
}

TEST(Matrix, WrongGradientsComeWithTheirCause) {
  EXPECT_EQ(At("ddp-last", "documented-predicate").verdict, Verdict::wrong);
  EXPECT_EQ(At("ddp-last", "documented-predicate").id, "wrong-divisor");
  EXPECT_EQ(At("ddp-last", "predicate").verdict, Verdict::works);
  EXPECT_EQ(At("gradcache-unscaled", "accumulate").id, "loss-not-times-ranks");
}

// P = 110,633,984. fsdp2-scatter-each peaks in the loss, when no gradient exists yet: nothing is saved there. With more
// microbatches nothing is accumulated, which every strategy that has the setting refuses; the others do not have it.
TEST(Matrix, UpdatesInsideTheBackwardPassAreTriedWithOneMicrobatch) {
  EXPECT_EQ(At("fsdp2-scatter-each", "optimizer-in-backward").verdict, Verdict::works);
  EXPECT_EQ(At("fsdp2-scatter-each", "optimizer-in-backward-accumulating").verdict, Verdict::refused);
  EXPECT_EQ(At("fsdp2-scatter-each", "optimizer-in-backward-accumulating").id, "update-frees-the-gradient");
  EXPECT_EQ(At("fsdp1", "optimizer-in-backward-accumulating").id, "update-frees-the-gradient");
  EXPECT_EQ(At("fsdp1", "optimizer-in-backward-accumulating").message, "");  // not that it has no such setting
  EXPECT_EQ(At("fsdp2-keep-all", "optimizer-in-backward-accumulating").verdict, Verdict::refused);
  for (const char* feature : {"optimizer-in-backward", "optimizer-in-backward-accumulating"}) {
    EXPECT_EQ(At("deepspeed-zero2", feature).verdict, Verdict::no_such_setting) << feature;
    EXPECT_EQ(At("hsdp", feature).verdict, Verdict::not_modelled) << feature;
  }
  EXPECT_EQ(At("ddp-forward-outside", "optimizer-in-backward").verdict, Verdict::not_modelled);
}

// LowLevelZeroOptimizer multiplies by one factor with and without clipping; losses in chunks are PyTorch code.
TEST(Matrix, WhatIsNotModelledOfOtherSystemsIsNoRefusalAndDoesNotWork) {
  for (const char* strategy : {"colossalai-zero1", "colossalai-zero2", "colossalai-gemini"}) {
    EXPECT_EQ(At(strategy, "clipping").verdict, Verdict::not_modelled) << strategy;
  }
  for (const char* strategy :
       {"alpa", "alpa-style1", "alpa-style2", "alpa-zero2", "jax-multisteps", "jax-scan", "jax-scan-stacked"}) {
    EXPECT_EQ(At(strategy, "chunked-loss").verdict, Verdict::not_modelled) << strategy;
    EXPECT_EQ(At(strategy, "fused-loss").verdict, Verdict::not_modelled) << strategy;
  }
  EXPECT_EQ(At("ddp-last", "fused-loss").verdict, Verdict::changes_memory);
}

// Facts of releases that no job shows: pytorch pull request 187732, torchtitan pull request 4505.
TEST(Matrix, FactsOfRealSystemsStandOverWhatIsComputed) {
  EXPECT_EQ(At("ddp-last", "static-graph").verdict, Verdict::wrong);
  EXPECT_EQ(At("ddp-last", "static-graph").id, "static-graph-with-no-sync");
  EXPECT_EQ(At("hsdp", "cuda-graphs").verdict, Verdict::does_not_defer);
}

}  // namespace
}  // namespace tidemark::matrix_test
