// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "sim/predict/lints.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/gradcache_job.h"

namespace tidemark::strategy_gradcache_passes_test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

DualEncoder& NetworkOf(Job& job) { return std::get<DualEncoder>(job.network.shape); }

Job WithLmLoss(const std::string& strategy, bool shared = false) {
  Job job = WorkedJob(strategy, shared);
  NetworkOf(job).lm_loss = true;
  return job;
}

/// The loss's gradients in one bucket each, whatever the bucket's size.
Job InOneBucket(Job job) {
  job.axes.sync.bucket_bytes = job.axes.sync.first_bucket_bytes = Bytes(1 << 30);
  return job;
}

TEST(GradCachePasses, EachPhaseSaysItsPassAndWhichChunkOfWhichSide) {
  Job job = WorkedJob("gradcache");
  job.axes.chunks = 2;
  const StepProgram step = MustLower(job);
  const Diary diary = Keep(step, job.machine);
  EXPECT_THAT(diary.phases,
              ElementsAre("load query 0", "load query 1", "load passage 0", "load passage 1",  //
                          "A_forward query 0", "A_forward query 1", "A_forward",               //
                          "A_forward passage 0", "A_forward passage 1", "A_forward",           //
                          "B_loss",                                                            //
                          "C_forward query 0", "C_backward query 0", "reduce query 0",         //
                          "C_forward query 1", "C_backward query 1", "reduce query 1",         //
                          "C_forward passage 0", "C_backward passage 0", "reduce passage 0",   //
                          "C_forward passage 1", "C_backward passage 1", "reduce passage 1", "optimizer"));
  const std::string text = Print(step.roles.front());
  EXPECT_THAT(text, HasSubstr("begin C_backward passage chunk 1"));
}

/// B = 64 pairs, d = 1024, fp32, N = 4: R = 64 * 1024 * 4 = 262,144 bytes are one side's representations, or their
/// gradients; G = 4 R = 1,048,576 those of all ranks; logits (4 * 64)^2 * 4 = 262,144.
TEST(GradCachePasses, CachesPeakAsWorkedOutInEachPass) {
  constexpr std::int64_t kR = 262'144, kG = 1'048'576, kLogits = 262'144;
  const Job job = WorkedJob("gradcache");
  Diary diary = Keep(MustLower(job), job.machine);
  const auto highest = [&](Phase phase, Category category) { return diary.highest_of[{phase, category}]; };
  const auto cache = Category::representation_cache;
  // A: the second side's chunks are concatenated beside them and the first side's whole.
  EXPECT_EQ(highest(Phase::represent, cache), 3 * kR);
  EXPECT_EQ(highest(Phase::represent, Category::logits), 0);
  // B: as the gathered representations have made their gradients; this rank's rows are then copied out of these.
  EXPECT_EQ(highest(Phase::loss, cache), 2 * kR + 2 * kG + 2 * kG);
  // Saved log-softmax, its gradient, that of the logits.
  EXPECT_EQ(highest(Phase::loss, Category::logits), 3 * kLogits);
  // C: representations and gradients of both sides, and one chunk of 8 made again.
  EXPECT_EQ(highest(Phase::chunk_forward, cache), 2 * kR + 2 * kR + kR / 8);
  EXPECT_EQ(highest(Phase::chunk_backward, cache), 2 * kR + 2 * kR + kR / 8);
  EXPECT_EQ(highest(Phase::chunk_backward, Category::logits), 0);
  EXPECT_EQ(highest(Phase::optimizer, cache), 0);
}

/// PyTorch's CPUGeneratorImplState as its source declares it (aten/src/ATen/CPUGeneratorImpl.cpp), which is what
/// torch.get_rng_state copies; a CUDA generator's state is a seed and an offset (CUDAGeneratorImpl.cpp).
TEST(GradCachePasses, RandomStatesHaveTheSizeOfPyTorchs) {
  struct MersenneTwister {
    std::uint64_t seed;
    std::int32_t left, seeded;
    std::uint64_t next, state[624];
    double normal[3];
    std::int32_t normal_is_valid;
  };
  struct CpuState {
    MersenneTwister twister;
    float next_normal;
    bool next_normal_is_valid;
  };
  static_assert(sizeof(MersenneTwister) == 5048 && sizeof(CpuState) == 5056);
  const Job job = WorkedJob("gradcache");
  Diary diary = Keep(MustLower(job), job.machine);
  EXPECT_EQ(diary.bytes.at("random state"), static_cast<std::int64_t>(sizeof(CpuState)) + 8 + 8);
  EXPECT_EQ(diary.born.at("random state"), 2 * 8);  // one for each chunk, before its first forward pass
  EXPECT_EQ((diary.highest_of[{Phase::represent, Category::rng}]), 16 * 5072);
  EXPECT_EQ(diary.died_in.at("random state"), std::set<Phase>{Phase::reduce});
}

/// Measured with PyTorch, 4 chunks of 2 sides: 8 all-reduces where the forward pass is outside no_sync, 2 where it is
/// inside, 2 where one module serves both sides.
TEST(GradCachePasses, FourChunksOfTwoSidesReduceTwiceOrEightTimes) {
  struct Case {
    const char* strategy;
    bool shared;
    std::int64_t all_reduces;
  };
  for (const Case& one : {Case{"gradcache", false, 2}, Case{"gradcache", true, 2}, Case{"gradcache-every", false, 8},
                          Case{"gradcache-forward-outside", false, 8}, Case{"gradcache-every", true, 8}}) {
    Job job = InOneBucket(WorkedJob(one.strategy, one.shared));
    job.axes.chunks = 4;
    const StepProgram step = MustLower(job);
    const CommunicationRow reduced = Messages(step, "all_reduce"), gathered = Messages(step, "all_gather");
    // Gradients are bf16. Each message is of one encoder: half of the parameters of two, all of one that is shared.
    const std::int64_t encoder = 2 * ParameterCount(job.network) / (one.shared ? 1 : 2);
    EXPECT_EQ(reduced.count, one.all_reduces) << one.strategy;
    EXPECT_EQ(reduced.payload.count(), one.all_reduces * encoder) << one.strategy;
    // A ring of 4: floor(3/4 of the buffer) twice.
    EXPECT_EQ(reduced.wire.count(), one.all_reduces * (2 * encoder * 3 / 4)) << one.strategy;
    EXPECT_EQ(gathered.count, 2);
    EXPECT_EQ(gathered.payload.count(), 2 * 1'048'576);  // 4 ranks * 64 * 1024 * 4
    EXPECT_EQ(gathered.wire.count(), 2 * 786'432);       // 3/4 of it
  }
}

TEST(GradCachePasses, OneTowerWorksAfterTheOther) {
  const Job job = WorkedJob("gradcache");
  const Diary diary = Keep(MustLower(job), job.machine);
  // The second tower's gradients appear when the first one's are reduced.
  ASSERT_TRUE(diary.died_in.contains("gradient of second.layer.wq"));
  EXPECT_EQ(diary.died_in.at("gradient of second.layer.wq"), std::set<Phase>{Phase::optimizer});
  const auto first_backward = std::find(diary.phases.begin(), diary.phases.end(), "C_backward passage 0");
  const auto last_reduced = std::find(diary.phases.begin(), diary.phases.end(), "reduce query 7");
  ASSERT_NE(first_backward, diary.phases.end());
  ASSERT_NE(last_reduced, diary.phases.end());
  EXPECT_LT(last_reduced - diary.phases.begin(), first_backward - diary.phases.begin());
}

/// Tokens of a chunk: 8 * 32 = 256; vocabulary 1000, bf16 logits, the rest of the loss in fp32.
TEST(GradCachePasses, ALanguageModelsLossCostsEachChunkItsLogits) {
  Job job = WithLmLoss("gradcache");
  Diary diary = Keep(MustLower(job), job.machine);
  EXPECT_EQ(diary.bytes.at("first.pool.logits"), 512'000);         // 256 * 1000 * 2
  EXPECT_EQ(diary.bytes.at("first.pool.log_softmax"), 1'024'000);  // * 4, saved
  EXPECT_EQ(diary.born.at("first.pool.logits"), 2 * 8);            // pass A throws them away
  EXPECT_EQ(diary.born.at("second.pool.log_softmax"), 8);          // in pass C only
  EXPECT_EQ(diary.runs.at("first.pool.lm_head.forward"), 2 * 8);
  EXPECT_EQ(diary.runs.at("first.pool.nll.forward"), 8);
  EXPECT_EQ(diary.runs.at("first.pool.lm_head.weight_gradient"), 8);
  EXPECT_EQ((diary.highest_of[{Phase::represent, Category::logits}]), 512'000);
  // Saved log-softmax beside its gradient and that of the upcast logits; before that, upcast logits and log-softmax.
  EXPECT_EQ((diary.highest_of[{Phase::chunk_backward, Category::logits}]), 3 * 1'024'000);
  EXPECT_EQ((diary.highest_of[{Phase::chunk_forward, Category::logits}]), 2 * 1'024'000);
  // A head of 1000 x 256 for each tower.
  EXPECT_EQ(ParameterCount(job.network) - ParameterCount(WorkedJob("gradcache").network), 2 * 256'000);
  const auto time = [](const Job& one) {
    const StepProgram step = MustLower(one);
    return Simulate(step, PriceAll(step, one.machine)).time;
  };
  EXPECT_GT(time(job).compute, time(WorkedJob("gradcache")).compute);
  EXPECT_GT(time(job).recompute, time(WorkedJob("gradcache")).recompute);
}

/// (lm_loss + surrogate).backward(), lm_loss times the chunk's share of the batch, as in coCondenser.
TEST(GradCachePasses, TheLanguageModelsLossCountsByTheChunksShareOfTheBatch) {
  for (const char* strategy : {"gradcache", "gradcache-every", "gradcache-forward-outside"}) {
    for (const std::int64_t ranks : {1, 3, 4}) {
      for (const std::int64_t chunks : {1, 8}) {
        for (const bool shared : {false, true}) {
          Job job = WithLmLoss(strategy, shared);
          job.axes.chunks = chunks;
          job.layout.dp = ranks;
          for (const Finding& finding : Verify(MustLower(job, StepKind::first))) {
            ADD_FAILURE() << strategy << " ranks " << ranks << " chunks " << chunks << ": " << finding.message;
          }
        }
      }
    }
  }
  Job plain = WithLmLoss("ddp-last");
  plain.micro_batch_size = plain.accumulation_steps = 8;
  EXPECT_TRUE(Verify(MustLower(plain)).empty());
}

TEST(GradCachePasses, TheLanguageModelsLossKeepsItsFactorWhereTheOtherLossLacksN) {
  const std::vector<Finding> findings = Verify(MustLower(WithLmLoss("gradcache-unscaled")), 1000);
  EXPECT_THAT(findings, Contains(Field(&Finding::message, HasSubstr("second.embedding"))));
  EXPECT_THAT(findings, Each(Field(&Finding::message, Not(HasSubstr("lm_head")))));
}

TEST(GradCachePasses, AnotherFactorOfTheLanguageModelsLossIsFound) {
  StepProgram step = MustLower(WithLmLoss("gradcache"));
  std::int64_t changed = 0;
  for (Node& node : step.roles.front().nodes) {
    if (auto* kernel = std::get_if<Compute>(&node);
        kernel != nullptr && step.roles.front().names[kernel->name.index] == "second.pool.nll.backward") {
      EXPECT_EQ(kernel->scale, Rational(1, 8));
      kernel->scale = Rational(1);
      ++changed;
    }
  }
  ASSERT_GT(changed, 0);
  EXPECT_THAT(Verify(step), Contains(Field(&Finding::message, HasSubstr("second.pool.lm_head.weight_gradient"))));
}

TEST(GradCachePasses, ATiedHeadOfATowerIsRefused) {
  Job job = WithLmLoss("gradcache");
  NetworkOf(job).first.tied_embeddings = true;
  const Status valid = Validate(job);
  ASSERT_FALSE(valid.ok());
  EXPECT_THAT(valid.error().Text(), HasSubstr("expected tied_embeddings of false with lm_loss"));
}

/// Seen with PyTorch: not a multiple of the full batch's gradient.
TEST(GradCachePasses, WithoutTheGatherEachRankComparesItsOwnPairsAndTheFactorNBesideItIsDeclaredWrong) {
  Job job = WorkedJob("gradcache");
  NetworkOf(job).gather = false;
  const StepProgram step = MustLower(job);
  EXPECT_EQ(Messages(step, "all_gather").count, 0);
  EXPECT_EQ(Keep(step, job.machine).bytes.at("loss.logits"), 64 * 64 * 4);
  std::vector<Lint> lints = LintJob(job);
  ASSERT_EQ(lints.size(), 2u);
  EXPECT_EQ(lints[0].id, "wrong-gradient");
  EXPECT_THAT(lints[0].message, HasSubstr("not gathered"));
  EXPECT_THAT(lints[0].hint, HasSubstr("network.dual_encoder.gather: true"));
  EXPECT_THAT(lints[0].hint, Not(HasSubstr("loss_times_ranks")));  // that is set
  EXPECT_EQ(lints[1].id, "contrastive-without-gather");
  EXPECT_THAT(lints[1].message, HasSubstr("compares 64 pairs, not 256"));
  EXPECT_THAT(lints[1].hint, HasSubstr("network.dual_encoder.gather: true"));
  // A mean over ranks is then what each rank's loss wants: times N it is that much too large.
  EXPECT_THAT(Verify(step).front().message, HasSubstr("with factor 1/8 on behalf of this rank"));  // not 1/(8 * 4)
  job.axes.loss_times_ranks = false;
  EXPECT_TRUE(Verify(MustLower(job)).empty());
  EXPECT_EQ(LintJob(job).size(), 1u);  // a sound mean of the wrong losses
  job.layout.dp = 1;
  EXPECT_TRUE(LintJob(job).empty());
  Job plain = WorkedJob("ddp-last");
  NetworkOf(plain).gather = false;
  lints = LintJob(plain);
  ASSERT_EQ(lints.size(), 1u);
  EXPECT_EQ(lints[0].id, "contrastive-without-gather");
  EXPECT_THAT(lints[0].message, HasSubstr("compares 64 pairs, not 256"));
}

/// 8 microbatches of 8 pairs on 4 ranks: without the gather a loss sees its rank's 8 pairs, with it those of all ranks.
TEST(GradCachePasses, ALossPerMicrobatchAndRankIsTwoMistakesAndEachCountsItsOwn) {
  Job job = WorkedJob("ddp-last");
  job.micro_batch_size = 8;
  job.accumulation_steps = 8;
  std::vector<Lint> lints = LintJob(job);
  ASSERT_EQ(lints.size(), 1u);
  EXPECT_EQ(lints[0].id, "contrastive-accumulation");
  EXPECT_THAT(lints[0].message, HasSubstr("compares 32 pairs at a time, not 256"));
  NetworkOf(job).gather = false;
  lints = LintJob(job);
  ASSERT_EQ(lints.size(), 2u);
  EXPECT_EQ(lints[0].id, "contrastive-accumulation");
  EXPECT_THAT(lints[0].message, HasSubstr("compares 8 pairs at a time, not 64"));
  EXPECT_EQ(lints[1].id, "contrastive-without-gather");
  EXPECT_THAT(lints[1].message, HasSubstr("compares 8 pairs, not 32"));
}

}  // namespace
}  // namespace tidemark::strategy_gradcache_passes_test
