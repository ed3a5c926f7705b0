// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/contents.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/profiler/execute/executed_job.h"

namespace tidemark::contents_test {
namespace {

/// Three heads' worth of odd sizes: wq 64 x 64, wk 32 x 64, norm 64, a vocabulary of 125 x 64.
Model ModelOfShard(std::int64_t shard, std::int64_t shards) {
  Job job = SmallJob("ddp-last");
  job.layout.dp = shards;
  std::get<Decoder>(job.network.shape).vocabulary = 125;
  return *Model::Of(job, {0, 1}, shard);
}

Buffer Holds(Holding holding, std::int64_t elements, Category category = Category::bucket) {
  Buffer buffer;
  buffer.name = "some bytes";
  buffer.category = category;
  buffer.elements = elements;
  buffer.extents = {2, 1};
  buffer.holds = {std::move(holding)};
  return buffer;
}

/// "parameter block begin..end at offset" of what is there.
std::vector<std::string> Lines(const Contents& contents) {
  std::vector<std::string> lines;
  for (const Stretch& stretch : contents.stretches) {
    lines.push_back(stretch.weight.name + " " + std::to_string(stretch.block) + " " + std::to_string(stretch.begin) +
                    ".." + std::to_string(stretch.end()) + " at " + std::to_string(stretch.offset));
  }
  return lines;
}

TEST(Contents, RowsAreRoundedUpAndTheLastRankHasFewer) {
  // 125 rows of 64 on 4 ranks: 32 each, the last has 29 and three rows of padding.
  const Buffer own = Holds({.cut = Cut::rows, .ranks = 4, .of = {{"embedding.embedding"}}}, 32 * 64);
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(0, 4), own, 0)),
            std::vector<std::string>{"embedding.embedding 0 0..2048 at 0"});
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(3, 4), own, 0)),
            std::vector<std::string>{"embedding.embedding 0 6144..8000 at 0"});
}

TEST(Contents, ARankMayHaveNoRowOfAParameter) {
  // One bias-like row of 64 elements has 64 rows of one; three rows on two ranks are two and one.
  const Buffer own = Holds({.cut = Cut::rows, .ranks = 128, .of = {{"layer.norm1"}}}, 1);
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(63, 128), own, 0)), std::vector<std::string>{"layer.norm1 0 63..64 at 0"});
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(64, 128), own, 0)), std::vector<std::string>{"layer.norm1 0 64..64 at 0"});
}

TEST(Contents, WhatAllRanksHaveStandsInTheirOrder) {
  const Buffer all =
      Holds({.cut = Cut::rows, .ranks = 2, .parts = Parts::all, .of = {{"layer.wq"}, {"layer.norm1"}}}, 4096 + 64);
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(0, 2), all, 1)),
            (std::vector<std::string>{"layer.wq 1 0..2048 at 0", "layer.norm1 1 0..32 at 2048",
                                      "layer.wq 1 2048..4096 at 2080", "layer.norm1 1 32..64 at 4128"}));
}

TEST(Contents, FlattenedTogetherARankBeginsInTheMiddleOfAParameter) {
  // 4096 + 2048 + 64 = 6208 numbers on 4 ranks: 1552 each, those of rank 2 from 3104 on; 4096 - 3104 = 992.
  const Buffer own =
      Holds({.cut = Cut::together, .ranks = 4, .of = {{"layer.wq"}, {"layer.wk"}, {"layer.norm1"}}}, 1552);
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(2, 4), own, 0)),
            (std::vector<std::string>{"layer.wq 0 3104..4096 at 0", "layer.wk 0 0..560 at 992",
                                      "layer.norm1 0 0..0 at 1552"}));
}

// 4096 + 64 numbers on 3 ranks are 1387 each, the last of them padding: gathered, no parameter is in pieces.
TEST(Contents, FlattenedTogetherOnlyTheEndIsPadded) {
  const std::vector<HeldRun> of = {{"layer.wq"}, {"layer.norm1"}};
  const Holding own{.cut = Cut::together, .ranks = 3, .of = of};
  const Holding all{.cut = Cut::together, .ranks = 3, .parts = Parts::all, .of = of};
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(2, 3), Holds(own, 1387), 0)),
            (std::vector<std::string>{"layer.wq 0 2774..4096 at 0", "layer.norm1 0 0..64 at 1322"}));
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(2, 3), Holds(all, 3 * 1387), 0)),
            (std::vector<std::string>{"layer.wq 0 0..4096 at 0", "layer.norm1 0 0..64 at 4096"}));
}

// Two norms of 64 numbers, each aligned to 100, end at 164, which is rounded up to 256: two ranks have 128 each. The
// first one's range ends 28 into the second norm, which begins at 100.
TEST(Contents, ARangeOfAlignedParametersMayLeaveItsPaddingOut) {
  Holding own{
      .cut = Cut::together, .ranks = 2, .of = {{"layer.norm1"}, {"layer.norm2"}}, .aligned = 100, .multiple = 256};
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(0, 2), Holds(own, 128), 0)),
            (std::vector<std::string>{"layer.norm1 0 0..64 at 0", "layer.norm2 0 0..28 at 100"}));
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(1, 2), Holds(own, 128), 0)),
            (std::vector<std::string>{"layer.norm1 0 64..64 at 0", "layer.norm2 0 28..64 at 0"}));
  own.unpadded = true;
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(0, 2), Holds(own, 64 + 28), 0)),
            (std::vector<std::string>{"layer.norm1 0 0..64 at 0", "layer.norm2 0 0..28 at 64"}));
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(1, 2), Holds(own, 36), 0)),
            (std::vector<std::string>{"layer.norm1 0 64..64 at 0", "layer.norm2 0 28..64 at 0"}));
  own.parts = Parts::all;
  own.unpadded = false;
  EXPECT_EQ(Lines(*ContentsOf(ModelOfShard(1, 2), Holds(own, 256), 0)),
            (std::vector<std::string>{"layer.norm1 0 0..64 at 0", "layer.norm2 0 0..64 at 100"}));
}

TEST(Contents, WhatIsCutTogetherIsOneTensorToTheOptimizer) {
  const Model model = ModelOfShard(0, 1);
  const auto joined = [&](Cut cut, std::size_t stretch) {
    return ContentsOf(model, Holds({.cut = cut, .of = {{"layer.wq"}, {"layer.norm1"}}}, 4160), 0)
        ->stretches[stretch]
        .joined;
  };
  EXPECT_FALSE(joined(Cut::together, 0));
  EXPECT_TRUE(joined(Cut::together, 1));
  EXPECT_FALSE(joined(Cut::rows, 1));
}

TEST(Contents, ABufferOfAnotherSizeHoldsNothingKnown) {
  const Holding rows{.cut = Cut::rows, .ranks = 4, .of = {{"embedding.embedding"}}};
  EXPECT_TRUE(ContentsOf(ModelOfShard(0, 4), Holds(rows, 2048), 0));
  EXPECT_FALSE(ContentsOf(ModelOfShard(0, 4), Holds(rows, 2000), 0));
  EXPECT_FALSE(ContentsOf(ModelOfShard(0, 1), Holds({.of = {{"layer.none"}}}, 2048), 0));
}

// Whether the state is divided by two or by four is the job's to say: a buffer that agrees with itself is not enough.
TEST(Contents, APartThatTheJobDoesNotDivideSoIsRefused) {
  const Buffer halves = Holds({.cut = Cut::rows, .ranks = 2, .of = {{"layer.wq"}}}, 2048);
  EXPECT_TRUE(ContentsOf(ModelOfShard(0, 2), halves, 0));
  EXPECT_FALSE(ContentsOf(ModelOfShard(0, 4), halves, 0));
}

TEST(Contents, TwoLayoutsShareWhatBothHold) {
  const Model model = ModelOfShard(1, 2);
  const Contents rows = *ContentsOf(model, Holds({.cut = Cut::rows, .ranks = 2, .of = {{"layer.wq"}}}, 2048), 0);
  const Contents whole = *ContentsOf(model, Holds({.of = {{"layer.wk"}, {"layer.wq"}}}, 2048 + 4096), 0);
  const std::vector<Shared> shared = SharedBy(rows, whole);
  ASSERT_EQ(shared.size(), 1);
  EXPECT_EQ(std::tuple(shared[0].stretch.begin, shared[0].stretch.elements, shared[0].stretch.offset, shared[0].offset),
            std::tuple(2048, 2048, 0, 2048 + 2048));
  EXPECT_TRUE(SharedBy(rows, *ContentsOf(model, Holds({.of = {{"layer.wq"}}}, 4096), 1)).empty());  // another block's
}

// A single parameter is looked for in all that another buffer holds, by a way of its own.
TEST(Contents, OneParameterIsFoundWhereverSeveralLayoutsHaveItsParts) {
  const Model model = ModelOfShard(1, 2);
  const Contents one = *ContentsOf(model, Holds({.of = {{"layer.wq"}}}, 4096), 0);
  const Buffer parts =
      Holds({.cut = Cut::rows, .ranks = 2, .parts = Parts::all, .of = {{"layer.wk"}, {"layer.wq"}}}, 2048 + 4096);
  const std::vector<Shared> found = SharedBy(one, *ContentsOf(model, parts, 0));
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(std::tuple(found[0].stretch.begin, found[0].stretch.elements), std::tuple(0, 2048));
  EXPECT_EQ(std::tuple(found[1].stretch.begin, found[1].stretch.elements), std::tuple(2048, 2048));
  EXPECT_LT(found[0].offset, found[1].offset);
  EXPECT_TRUE(SharedBy(one, *ContentsOf(model, parts, 1)).empty());  // another block's
}

TEST(Contents, ATableHasWhatIsWorkedOutAnew) {
  const Model model = ModelOfShard(0, 4);
  const Buffer known = Holds({.of = {{"layer.wq"}}}, 4096), unknown = Holds({.of = {{"layer.none"}}}, 4096);
  ContentsTable table;
  const auto first = table.Of(model, known, 0);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(Lines(*first), Lines(*ContentsOf(model, known, 0)));
  EXPECT_EQ(table.Of(model, known, 0), first);
  EXPECT_EQ(Lines(*table.Of(model, known, 1)), Lines(*ContentsOf(model, known, 1)));
  EXPECT_EQ(table.Of(model, unknown, 0), nullptr);
  EXPECT_EQ(table.Of(model, unknown, 0), nullptr);
}

// What a buffer says must fit what the kernels make of it.
TEST(Contents, ABufferThatSaysSomethingElseIsRefused) {
  const Job job = SmallJob("fsdp2-scatter-each");
  const auto run = [&](const std::string& name, const Holding& holding) {
    LoweredSteps lowered(job, 1);
    for (Buffer& buffer : lowered.first().buffers) {
      if (buffer.name == name) {
        buffer.holds = {holding};
      }
    }
    return RunAlone(job, lowered.steps()).ok();
  };
  Holding shard{.cut = Cut::rows, .frozen = true, .masters = true, .of = {{"layer.wq"}}};
  EXPECT_TRUE(run("shard of layer.wq", shard));
  shard.masters = false;  // bf16 in place of fp32
  EXPECT_FALSE(run("shard of layer.wq", shard));
  EXPECT_FALSE(run("unsharded layer.gate_up", {.of = {{"layer.wq"}}}));  // of another size
  EXPECT_FALSE(run("unsharded layer.wq", {.of = {{"layer.wq", 1}}}));    // another layer's
  EXPECT_FALSE(run("sharded gradient of embedding", {.of = {{"head.norm"}}}));
}

}  // namespace
}  // namespace tidemark::contents_test
