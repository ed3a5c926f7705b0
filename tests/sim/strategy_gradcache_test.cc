// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/predict/lints.h"
#include "sim/program/verify.h"
#include "tests/sim/dice.h"
#include "tests/sim/gradcache_job.h"

namespace tidemark::strategy_gradcache_test {
namespace {

using ::testing::HasSubstr;

TEST(GradCache, CachesHaveTheWorkedSizes) {
  const Diary diary = Keep(MustLower(WorkedJob("gradcache")), TestMachine());
  for (const std::string side : {"first.", "second."}) {
    EXPECT_EQ(diary.bytes.at(side + "representations"), 262144);      // 64 * 1024 * 4
    EXPECT_EQ(diary.bytes.at(side + "cache"), 262144);                // their gradient
    EXPECT_EQ(diary.bytes.at("loss." + side + "gathered"), 1048576);  // 4 ranks * 262144
    EXPECT_EQ(diary.born.at(side + "representation"), 2 * 8);         // 8 chunks, each forward twice
    EXPECT_EQ(diary.bytes.at(side + "representation"), 8 * 1024 * 4);
  }
  EXPECT_EQ(diary.bytes.at("loss.logits"), 262144);  // (4 * 64)^2 * 4
  EXPECT_EQ(diary.bytes.at("loss.log_softmax"), 262144);
  EXPECT_EQ(diary.born.at("loss.logits"), 1);
}

TEST(GradCache, HardNegativesWidenTheLogits) {
  Job job = WorkedJob("gradcache");
  std::get<DualEncoder>(job.network.shape).targets = 3;
  const Diary diary = Keep(MustLower(job), TestMachine());
  EXPECT_EQ(diary.bytes.at("loss.logits"), 3 * 262144);  // (N B) x (N B T) * 4
  EXPECT_EQ(diary.bytes.at("loss.first.gathered"), 1048576);
  EXPECT_EQ(diary.bytes.at("loss.second.gathered"), 3 * 1048576);
}

TEST(GradCache, WhatTheLossNeedsIsGoneBeforeTheFirstBackwardPass) {
  const Diary diary = Keep(MustLower(WorkedJob("gradcache")), TestMachine());
  for (const char* name : {"loss.logits", "loss.log_softmax", "loss.d_logits", "loss.first.gathered"}) {
    EXPECT_EQ(diary.died_in.at(name), std::set<Phase>{Phase::loss}) << name;
  }
  // reps and cache live until the last backward pass is done: its reduction is what comes before the optimizer.
  EXPECT_EQ(diary.died_in.at("first.representations"), std::set<Phase>{Phase::reduce});
  EXPECT_EQ(diary.died_in.at("second.cache"), std::set<Phase>{Phase::reduce});
}

TEST(GradCache, EachSampleRunsForwardTwiceAndBackwardOnce) {
  const Job job = WorkedJob("gradcache");
  const StepProgram step = MustLower(job);
  const Diary diary = Keep(step, job.machine);
  for (const std::string tower : {"first.", "second."}) {
    EXPECT_EQ(diary.runs.at(tower + "embedding.embedding.forward"), 2 * 8);
    EXPECT_EQ(diary.runs.at(tower + "embedding.embedding.backward"), 8);
    EXPECT_EQ(diary.runs.at(tower + "layer.wq.forward"), 2 * 8 * 6);
    EXPECT_EQ(diary.runs.at(tower + "layer.wq.weight_gradient"), 8 * 6);
    EXPECT_EQ(diary.runs.at(tower + "pool.projection.forward"), 2 * 8);
  }
  EXPECT_EQ(diary.runs.at("loss.similarity.forward"), 1);
  // In time: what counts as recomputation is half of all that the towers' forward kernels take.
  Nanos forward;
  for (const auto& [name, time] : diary.time) {
    forward +=
        name.ends_with(".forward") && !name.starts_with("loss.") && !name.starts_with("surrogate") ? time : Nanos(0);
  }
  EXPECT_EQ(Simulate(step, PriceAll(step, job.machine)).time.recompute * 2, forward);
}

TEST(GradCache, RepresentationsAreMadeWithoutKeepingActivations) {
  const Job job = WorkedJob("gradcache");
  Job one_layer = job;
  std::get<DualEncoder>(one_layer.network.shape).first.layers = 1;
  std::get<DualEncoder>(one_layer.network.shape).second.layers = 1;
  Diary deep = Keep(MustLower(job), job.machine), shallow = Keep(MustLower(one_layer), job.machine);
  EXPECT_EQ(deep.highest_activations.at(Phase::represent), shallow.highest_activations.at(Phase::represent));
  EXPECT_GT(deep.highest_activations.at(Phase::chunk_backward), shallow.highest_activations.at(Phase::chunk_backward));
  // Phase C holds one chunk: a plain step of one microbatch of the chunk's size holds both towers' at once.
  Job plain = WorkedJob("ddp-last");
  plain.micro_batch_size = 8;
  EXPECT_LT(deep.highest_activations.at(Phase::chunk_backward),
            Keep(MustLower(plain), job.machine).highest_activations.at(Phase::backward));
}

TEST(GradCache, EachEncoderIsReducedOnce) {
  for (const StepKind kind : {StepKind::first, StepKind::steady}) {
    Job job = WorkedJob("gradcache");
    job.axes.sync.bucket_bytes = job.axes.sync.first_bucket_bytes = Bytes(1 << 30);
    const StepProgram step = MustLower(job, kind);
    EXPECT_EQ(Messages(step, "all_reduce").count, 2);
    EXPECT_EQ(Messages(step, "all_reduce").payload.count(), 2 * ParameterCount(job.network));  // both, b_g = 2
    EXPECT_EQ(Messages(step, "all_gather").count, 2);
    EXPECT_EQ(Messages(step, "all_gather").payload.count(), 2 * 1048576);
    job.axes.sync.when = Sync::When::every;
    EXPECT_EQ(Messages(MustLower(job, kind), "all_reduce").count, 2 * 8);
    job.axes.sync.when = Sync::When::last;
    job.axes.sync.forward_in_no_sync = false;
    EXPECT_EQ(Messages(MustLower(job, kind), "all_reduce").count, 2 * 8);
  }
}

TEST(GradCache, AnEncoderOfBothSidesIsReducedTwice) {
  Job job = WorkedJob("gradcache", true);
  job.axes.sync.bucket_bytes = job.axes.sync.first_bucket_bytes = Bytes(1 << 30);
  const StepProgram step = MustLower(job);
  EXPECT_EQ(Messages(step, "all_reduce").count, 2);
  EXPECT_EQ(Messages(step, "all_reduce").payload.count(), 2 * 2 * ParameterCount(job.network));
}

TEST(GradCache, GradientsAreThoseOfTheLossOverAllRanks) {
  for (const char* strategy : {"gradcache", "gradcache-every", "gradcache-forward-outside"}) {
    for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
      for (const std::int64_t chunks : {1, 2, 8}) {
        for (const std::int64_t ranks : {1, 3, 4}) {
          for (const bool shared : {false, true}) {
            Job job = WorkedJob(strategy, shared);
            job.axes.chunks = chunks;
            job.layout.dp = ranks;
            EXPECT_EQ(LintJob(job).size(), ranks > 1 && chunks > 1 && std::string(strategy) != "gradcache" ? 1u : 0u);
            for (const Finding& finding : Verify(MustLower(job, kind), 1)) {
              ADD_FAILURE() << strategy << " chunks " << chunks << " ranks " << ranks << " shared " << shared << ": "
                            << finding.message;
            }
          }
        }
      }
    }
  }
}

/// Measured with PyTorch: 1/2 of the gradient over 2 ranks, 1/4 over 4.
TEST(GradCache, WithoutTheFactorEveryGradientIsTooSmallByTheNumberOfRanks) {
  const Job job = WorkedJob("gradcache-unscaled");
  ASSERT_TRUE(FindStrategy(job.strategy)->DeclaredWrong(job).has_value());
  EXPECT_EQ(FindStrategy(job.strategy)->DeclaredWrong(job)->hint,
            std::string("multiply the loss by the number of ranks: gradient_flow.loss_times_ranks: true"));
  const std::vector<Finding> findings = Verify(MustLower(job));
  ASSERT_FALSE(findings.empty());
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.rule, Finding::Rule::wrong_factor);
    EXPECT_THAT(finding.message, HasSubstr("with factor 1/128 on behalf of this rank"));  // 1 / (8 chunks * 4 * 4)
    EXPECT_THAT(finding.message, HasSubstr("not 1/32"));
  }
  Job alone = job;
  alone.layout.dp = 1;
  EXPECT_TRUE(Verify(MustLower(alone)).empty());
  EXPECT_FALSE(FindStrategy(job.strategy)->DeclaredWrong(alone).has_value());
}

TEST(GradCache, ChunksTakeThePlaceOfMicrobatches) {
  Job job = WorkedJob("gradcache");
  job.axes.chunks = 0;
  job.micro_batch_size = 8;
  job.accumulation_steps = 8;
  const Job usual = WorkedJob("gradcache");
  const auto evaluate = [](const Job& one) {
    const StepProgram step = MustLower(one);
    return EvaluateClosedForm(step, PriceAll(step, one.machine));
  };
  EXPECT_EQ(evaluate(job), evaluate(usual));
}

TEST(GradCache, WhatItCannotDoIsRefusedWithTheReason) {
  const auto refusal = [](const Job& job) {
    const Status valid = Validate(job);
    const Status accepted = valid.ok() ? FindStrategy(job.strategy)->Accept(job) : valid;
    return accepted.ok() ? std::string() : accepted.error().Text();
  };
  Job job = WorkedJob("gradcache");
  EXPECT_EQ(refusal(job), "");
  job.axes.chunks = 7;
  EXPECT_THAT(refusal(job), HasSubstr("64 samples of a rank do not divide into 7 chunks"));
  job = OracleJob("gradcache", 2);
  job.network = OracleJob("ddp-last", 2).network;
  EXPECT_THAT(refusal(job), HasSubstr("the network must be a dual encoder"));
  job = WorkedJob("gradcache");
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "i == 0";
  EXPECT_THAT(refusal(job), HasSubstr("in the last chunk of each encoder"));
  job = WorkedJob("gradcache");
  job.axes.shard.params = true;
  EXPECT_THAT(refusal(job), HasSubstr("ZeRO-2 and ZeRO-3 refuse the no_sync"));
  job = WorkedJob("gradcache");
  job.layout.pp = 2;
  EXPECT_THAT(refusal(job), HasSubstr("two towers that meet in one loss"));
  job = WorkedJob("gradcache");
  job.layout.tp = 2;
  EXPECT_THAT(refusal(job), HasSubstr("tensor parallelism of a dual encoder is not modelled"));
  job = WorkedJob("gradcache", true);
  std::get<DualEncoder>(job.network.shape).targets = 2;
  EXPECT_THAT(refusal(job), HasSubstr("a shared encoder takes chunks of one size"));
  job = WorkedJob("ddp-last");
  job.axes.chunks = 4;
  EXPECT_THAT(refusal(job), HasSubstr("is only looked at with gradient_flow.kind: gradcache"));
  job = WorkedJob("gradcache");
  job.accumulation_steps = 2;
  job.last_window = {LastWindow::Policy::rescaled, 1};
  EXPECT_THAT(refusal(job), HasSubstr("one loss over the whole batch"));
}

TEST(GradCache, PlainAccumulationComparesFewerPairs) {
  Job job = WorkedJob("ddp-last");
  const auto has = [](const Job& one) {
    const std::vector<Lint> lints = LintJob(one);
    return std::any_of(lints.begin(), lints.end(), [](const Lint& lint) {
      return lint.id == "contrastive-accumulation" &&
             lint.message.find("32 pairs at a time, not 256") != std::string::npos;
    });
  };
  EXPECT_FALSE(has(job));
  job.micro_batch_size = 8;
  job.accumulation_steps = 8;
  EXPECT_TRUE(has(job));
  job.strategy = "gradcache";
  job.axes = FindStrategy("gradcache")->defaults.axes;
  EXPECT_FALSE(has(job));
}

TEST(GradCache, ClosedFormAndSimulationAgree) {
  Dice dice(20261122);
  for (int i = 0; i < Rounds(300); ++i) {
    constexpr const char* kStrategies[] = {"gradcache", "gradcache-every", "gradcache-forward-outside",
                                           "gradcache-unscaled"};
    Job job = WorkedJob(kStrategies[dice.Roll(4)], dice.OneIn(3));
    DualEncoder& network = std::get<DualEncoder>(job.network.shape);
    network.first.layers = dice.Number(1, 40);
    network.second.layers = dice.Number(1, 9);
    network.first.dropout = dice.OneIn(2) ? 0.1 : 0;
    network.targets = network.shared ? 1 : dice.Number(1, 3);
    network.gather = !dice.OneIn(4);
    network.lm_loss = dice.OneIn(3);
    network.representation = dice.OneIn(2) ? network.first.hidden : 48;
    if (dice.OneIn(4)) {
      job.network.trainable = {network.shared ? "encoder.layer.*" : dice.OneIn(2) ? "first.*" : "second.layer.w*"};
    }
    job.axes.chunks = std::int64_t{1} << dice.Roll(7);
    job.layout.dp = dice.Number(1, 9);
    job.axes.sync.overlap = dice.OneIn(2);
    job.axes.sync.bucket_bytes = Bytes(dice.Number(1000, 3000000));
    const StepProgram step = MustLower(job, static_cast<StepKind>(i % 3));
    const std::vector<Costs> costs = PriceAll(step, job.machine);
    ASSERT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs)) << i;
    if (i % 10 == 0) {
      const bool wrong = FindStrategy(job.strategy)->DeclaredWrong(job).has_value();
      for (const Finding& finding : Verify(step)) {
        ASSERT_TRUE(wrong && IsWrongResult(finding.rule)) << finding.message;
      }
    }
  }
}

}  // namespace
}  // namespace tidemark::strategy_gradcache_test
