// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sim/predict/lints.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

// The oracle's layers: 2,048 positions, 4,096 tokens a microbatch, heads of 64, of which a row of complex numbers has
// 256 bytes (torchtitan's ComplexRoPE).

namespace tidemark::rotary_table_test {
namespace {

constexpr std::int64_t kTable = 2'048 * 256, kRows = 4'096 * 256;

Job WithTable(const std::string& strategy) {
  Job job = OracleJob(strategy, 2);
  job.axes.buffers.fused_rope = false;
  std::get<Decoder>(job.network.shape).rotary_table = Decoder::RotaryTable::pairs;
  return job;
}

std::int64_t Inputs(const CategoryBytes& live) { return live[Category::input].count(); }

/// Of two books, the second that of the same job without a table.
struct Books {
  Ledger with, without;

  explicit Books(const Job& job) : with(BookOf(job)), without(BookOf(Without(job))) {}
  static Job Without(Job job) {
    std::get<Decoder>(job.network.shape).rotary_table = Decoder::RotaryTable::none;
    return job;
  }
};

// No system divides it: module buffers are no parameters.
TEST(RotaryTable, IsWholeOnEveryRankAllTheTime) {
  for (const char* strategy : {"ddp-last", "fsdp1", "fsdp2-scatter-each", "deepspeed-zero3", "megatron-dist-opt",
                               "nanotron", "colossalai-gemini", "alpa"}) {
    const Books books(WithTable(strategy));
    for (std::size_t i = 0; i < books.with.between_microbatches.size(); ++i) {
      EXPECT_EQ(Inputs(books.with.between_microbatches[i]) - Inputs(books.without.between_microbatches[i]), 4 * kTable)
          << strategy;
    }
    EXPECT_FALSE(books.with.between_microbatches.empty()) << strategy;
    EXPECT_EQ(Inputs(books.with.after_optimizer) - Inputs(books.without.after_optimizer), 4 * kTable) << strategy;
  }
}

TEST(RotaryTable, OfAStageIsThatOfItsOwnLayers) {
  Job job = WithTable("megatron");
  job.layout.dp = 1;
  job.layout.pp = 2;
  job.layout.layers_per_stage = {3, 1};
  job.accumulation_steps = 4;
  const StepProgram program = Sound(job);
  ASSERT_EQ(program.roles.size(), 2U);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : program.roles[stage].buffers) {
      bytes += buffer.name.ends_with(".rotary_table") ? buffer.bytes().count() * buffer.count() : 0;
    }
    EXPECT_EQ(bytes, (stage == 0 ? 3 : 1) * kTable);
  }
}

// What the backward pass reads of a layer that is not done again; a layer that is takes its rows anew.
TEST(RotaryTable, KeepsRowsOfEachLayerThatIsNotDoneAgain) {
  Job job = WithTable("ddp-last");
  const auto kept = [](const Job& of) {
    const Books books(of);
    return books.with.after_forward.front()[Category::activation].count() -
           books.without.after_forward.front()[Category::activation].count();
  };
  EXPECT_EQ(kept(job), 4 * kRows);
  job.axes.recompute.policy = Recompute::Policy::per_op;
  EXPECT_EQ(kept(job), 0);
  job.axes.recompute.policy = Recompute::Policy::full;
  EXPECT_EQ(kept(job), 0);
  job.axes.recompute.policy = Recompute::Policy::none;
  job.axes.buffers.fused_rope = true;
  EXPECT_EQ(kept(job), 0);
}

// What turns queries and keys out of the packed projection makes new tensors in any case; rows it keeps only unfused.
TEST(RotaryTable, IsSomethingThatFusedRotationChanges) {
  using ::testing::Contains;
  using ::testing::Field;
  using ::testing::HasSubstr;
  Job job = WithTable("ddp-last");
  job.axes.packing.qkv = std::get<Decoder>(job.network.shape).qkv_views = true;
  const auto is_named = Contains(Field(&Lint::message, HasSubstr("buffers.fused_rope changes nothing")));
  EXPECT_THAT(LintJob(job), Not(is_named));
  EXPECT_THAT(LintJob(Books::Without(job)), is_named);
}

// torchtitan's Qwen3 0.6B (tests/cli/torchtitan_rehearsed.json): 151,936 x 1,024 numbers in bf16, and an eighth in
// fp32.
TEST(RotaryTable, BesideATiedEmbeddingIsTorchtitans) {
  using ::testing::AllOf;
  using ::testing::Contains;
  using ::testing::Field;
  using ::testing::HasSubstr;
  const auto is_named = Contains(AllOf(Field(&Lint::id, "tied-embedding-gathered-twice"),
                                       Field(&Lint::message, AllOf(HasSubstr("297 MiB"), HasSubstr("74.2 MiB")))));
  Job job = WithTable("fsdp2-scatter-each");
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.vocabulary = 151'936;
  job.layout.dp = 8;
  EXPECT_THAT(LintJob(job), Not(is_named));
  decoder.tied_embeddings = true;
  EXPECT_THAT(LintJob(job), is_named);
  EXPECT_THAT(LintJob(Books::Without(job)), Not(is_named));
  job.strategy = "ddp-last";
  EXPECT_THAT(LintJob(job), Not(is_named));
}

}  // namespace
}  // namespace tidemark::rotary_table_test
