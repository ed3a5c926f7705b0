// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "models/job/fields.h"
#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/lower/lower.h"
#include "sim/predict/steps.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/property/random_job.h"

namespace tidemark::engines_agree_test {
namespace {

/// By each of two processes, which run beside each other.
std::int64_t JobsToTry() { return std::getenv("TIDEMARK_FULL") != nullptr ? 25'000 : 10'000; }

bool IsLayer(const BlockRun& run) { return !run.block.parts.empty(); }

/// Elements of the largest parameter of a layer, and of all of the largest layer, for the bucket classes.
struct LayerSize {
  std::int64_t largest = 0, all = 0;
};

LayerSize LayerSizeOf(const Job& job) {
  LayerSize size;
  const Result<std::vector<BlockRun>> runs = BuildBlocks(job.network, PartitionOf(job));
  EXPECT_TRUE(runs.ok());
  for (const BlockRun& run : *runs) {
    std::int64_t all = 0;
    for (const Parameter& parameter : run.block.parameters) {
      size.largest = std::max(size.largest, IsLayer(run) ? parameter.elements : 0);
      all += parameter.elements;
    }
    size.all = std::max(size.all, IsLayer(run) ? all : 0);
  }
  return size;
}

/// Elements of a bucket, 0 where the strategy has none.
std::int64_t BucketOf(const Job& job) {
  if (job.axes.sync.bucket_elements > 0) {
    return job.axes.sync.bucket_elements;
  }
  return job.axes.shard.params ? 0 : job.axes.sync.bucket_bytes.count() / SizeOf(job.axes.precision.gradients).count();
}

/// What is rare, so that a class of it need not be large: it must be drawn at all.
std::map<std::string, bool> NewestFeatures(const Job& job) {
  const OptimizerStep& step = job.axes.optimizer_step;
  const Recompute::Policy policy = job.axes.recompute.policy;
  return {{"(loss in chunks)", TakesChunks(job.axes.loss)},
          {"(uneven sequences)", job.mean_sequence_length > 0},
          {"(shared sequences)", job.layout.cp > 1},
          {"(norms of outputs)", TowerOf(job.network).NormalisesOutputs()},
          {"(norms of outputs alone)", !TowerOf(job.network).NormalisesInputs()},
          {"(norms of all heads at once)", TowerOf(job.network).qk_norm_over == Decoder::QkNormOver::all_heads},
          {"(sliding windows)", TowerOf(job.network).sliding_window > 0},
          {"(experts)", ExpertsOf(job.network) != nullptr},
          {"(layers before those with experts)", TowerOf(job.network).experts.dense_layers > 0},
          {"(experts on other ranks)", job.layout.ep > 1},
          {"(experts' weights sharded over other ranks than the rest)", job.layout.ep > 1 && job.axes.shard.params},
          {"(recomputed whole)", policy == Recompute::Policy::full},
          {"(recomputed every n)", policy == Recompute::Policy::every_n},
          {"(recomputed in part)", policy == Recompute::Policy::selective},
          {"(recomputed per op)", policy == Recompute::Policy::per_op},
          {"(recomputed as needed)", policy != Recompute::Policy::none && job.axes.recompute.needed_only},
          {"(clipped)", step.clip_norm > 0},
          {"(updated in backward)", step.in_backward},
          {"(updated by the host)", step.offload},
          {"(foreach)", step.kernel == OptimizerStep::Kernel::foreach_},
          {"(for-loop)", step.kernel == OptimizerStep::Kernel::for_loop}};
}

/// The classes of jobs that have broken such engines before; each must make up a good part of the sample.
void Classify(const Job& job, std::map<std::string, std::int64_t>& histogram) {
  const Decoder& decoder = TowerOf(job.network);
  const auto count = [&](const std::string& name, bool applies) { histogram[name] += applies ? 1 : 0; };
  count("one microbatch", job.accumulation_steps == 1);
  count("one data-parallel rank", job.layout.dp == 1);
  count("microbatches not a multiple of stages", job.accumulation_steps % job.layout.pp != 0);
  bool uneven = false;
  for (const std::int64_t layers : job.layout.layers_per_stage) {
    uneven |= layers != job.layout.layers_per_stage.front();
  }
  count("uneven layers per stage", uneven);
  count("vocabulary or heads not divisible by ranks",
        decoder.vocabulary % job.layout.dp != 0 || decoder.heads % job.layout.dp != 0);
  const bool dual = std::holds_alternative<DualEncoder>(job.network.shape);
  count("tied embeddings", decoder.tied_embeddings && !dual);
  count("(two towers, or one for two inputs)", dual);
  const LayerSize layer = LayerSizeOf(job);
  const std::int64_t bucket = BucketOf(job);
  count("a parameter larger than a bucket", bucket > 0 && layer.largest > bucket);
  count("a bucket over three layers", bucket > 3 * layer.all);
  for (const auto& [name, applies] : NewestFeatures(job)) {
    count(name, applies);
  }
  count("(strategy " + job.strategy + ")", true);
}

bool IsDeclaredWrong(const Job& job) { return FindStrategy(job.strategy)->DeclaredWrong(job).has_value(); }

/// The settings in which the job differs from its strategy's defaults, for messages.
std::string Describe(const Job& job) {
  const Decoder& decoder = TowerOf(job.network);
  Job plain = job;
  plain.axes = FindStrategy(job.strategy)->defaults.axes;
  std::string changes;
  for (const Field<Job>& field : JobFields()) {
    if (field.write && field.write(job) != field.write(plain)) {
      changes += " " + field.key + "=" + field.write(job);
    }
  }
  for (const std::string& pattern : job.network.trainable) {
    changes += " trained: " + pattern;
  }
  return changes + " last_window " + std::to_string(job.last_window.microbatches) + " " + job.strategy + " layers " +
         std::to_string(decoder.layers) + " microbatches " + std::to_string(job.accumulation_steps) + " dp " +
         std::to_string(job.layout.dp) + " tp " + std::to_string(job.layout.tp) + " pp " +
         std::to_string(job.layout.pp);
}

class BothEngines : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(BothEngines, AgreeToTheByteAndTheNanosecond) {
  JobGenerator generator(GetParam());
  std::map<std::string, std::int64_t> histogram;
  std::int64_t verified = 0, declared_wrong = 0;
  const std::int64_t jobs = JobsToTry();
  for (std::int64_t i = 0; i < jobs; ++i) {
    const Job job = generator.Next();
    const auto kind = static_cast<StepKind>(i % 3);
    const Result<std::vector<LoweredRun>> runs = LowerRuns(job, std::vector<StepRun>{{kind, 1}});
    ASSERT_TRUE(runs.ok()) << Describe(job) << ": " << runs.error().Text();
    const StepProgram* const step = &runs->front().program;
    const std::vector<Costs>& costs = runs->front().costs;
    const Evaluation simulated = Simulate(*step, costs);
    const Evaluation closed = EvaluateClosedForm(*step, costs);
    ASSERT_EQ(simulated, closed) << "job " << i << ": " << Describe(job) << "\nsteps of " << simulated.time.step.count()
                                 << " and " << closed.time.step.count() << " ns";
    const StepTime& time = simulated.time;
    ASSERT_EQ(time.step,
              time.compute + time.recompute + time.optimizer + time.exposed_communication + time.bubble + time.host)
        << Describe(job);
    for (const MemoryPeak& peak : simulated.roles) {
      ASSERT_EQ(peak.allocated, peak.by_category.Total());
    }
    if (i % 20 == 0) {
      const std::vector<Finding> findings = Verify(*step);
      for (const Finding& finding : findings) {
        ASSERT_TRUE(IsDeclaredWrong(job) && IsWrongResult(finding.rule)) << Describe(job) << ": " << finding.message;
      }
      // A shared pool is declared wrong whatever is trained: with all layers frozen nobody may read what it lost.
      ASSERT_TRUE(IsDeclaredWrong(job) == !findings.empty() || !job.network.trainable.empty()) << Describe(job);
      declared_wrong += findings.empty() ? 0 : 1;
      ++verified;
    }
    Classify(job, histogram);
  }
  std::cout << jobs << " jobs, " << verified << " of them verified, " << declared_wrong
            << " of these wrong, and declared so\n";
  EXPECT_GT(declared_wrong, 0);
  for (const auto& [feature, applies] : NewestFeatures(Job())) {
    EXPECT_GT(histogram[feature], 0) << feature;
  }
  for (const Strategy& strategy : AllStrategies()) {
    EXPECT_GT(histogram["(strategy " + strategy.defaults.name + ")"], 0) << strategy.defaults.name;
  }
  for (const auto& [name, count] : histogram) {
    const double share = 100.0 * static_cast<double>(count) / static_cast<double>(jobs);
    std::cout << "  " << name << ": " << count << " (" << share << " %)\n";
    if (!name.starts_with("(")) {
      EXPECT_GE(share, 30) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, BothEngines, ::testing::Values(20261121, 20261128));

TEST(Engines, AProgramAndItsUnrolledFormEvaluateAlike) {
  JobGenerator generator(7);
  for (std::int64_t i = 0; i < 300; ++i) {
    const Job job = generator.Next();
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    ASSERT_TRUE(step.ok());
    StepProgram unrolled;
    std::vector<Costs> costs, unrolled_costs;
    for (const Program& program : step->roles) {
      costs.push_back(Price(program, job.machine));
      unrolled.roles.push_back(Unroll(program));
      unrolled_costs.push_back(Price(unrolled.roles.back(), job.machine));
    }
    ASSERT_EQ(EvaluateClosedForm(*step, costs), EvaluateClosedForm(unrolled, unrolled_costs)) << Describe(job);
  }
}

TEST(Engines, ProgramsOfRandomJobsSurviveTheirTextForm) {
  JobGenerator generator(11);
  for (std::int64_t i = 0; i < 300; ++i) {
    const Result<StepProgram> step = Lower(generator.Next(), StepKind::first);
    ASSERT_TRUE(step.ok());
    for (const Program& program : step->roles) {
      const std::string text = Print(program);
      const Result<Program> parsed = ParseProgram(text);
      ASSERT_TRUE(parsed.ok()) << parsed.error().Text();
      ASSERT_EQ(Print(*parsed), text);
    }
  }
}

}  // namespace
}  // namespace tidemark::engines_agree_test
