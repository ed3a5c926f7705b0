// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/explanation.h"

#include <gtest/gtest.h>

#include <utility>

#include "models/job/read.h"
#include "sim/predict/predict.h"
#include "tests/property/random_job.h"

// Explanations of random pairs of jobs, of whatever strategies: sums are exact, a job differs from itself in nothing.

namespace tidemark::explanation_test {
namespace {

constexpr int kPairs = 300;

ExplainedSide SideOf(const Job& job) {
  Result<Prediction> prediction = Predict(job, {});
  EXPECT_TRUE(prediction.ok()) << JobYaml(job);
  ExplainedSide side;
  side.microbatches = job.Microbatches();
  side.tokens = TokensPerRank(job) * static_cast<double>(job.Ranks());
  side.stages = job.layout.pp;
  side.report.job_yaml = JobYaml(job);
  side.report.device_memory = job.machine.device_memory;
  side.report.worst = prediction->worst_role;
  const StepTime& time = prediction->time;
  side.report.time = {
      time.step, time.compute, time.recompute, time.optimizer, time.exposed_communication, time.bubble, time.host, {}};
  side.report.steps = {{"steady", 1, time.step, {}, {}}};
  for (RolePrediction& role : prediction->roles) {
    RoleReport report;
    report.role = role.role;
    report.peak = SummarisePeak(*role.trace);
    EXPECT_EQ(Verify(*role.trace), "");
    report.trace = std::move(role.trace);
    side.report.roles.push_back(std::move(report));
  }
  side.report.instants = FindInstants(*side.report.Worst().trace);
  return side;
}

void ExpectSums(const Explanation& explanation) {
  Bytes peak, before, after;
  for (const ExplainedTensor& tensor : explanation.tensors) {
    peak += tensor.delta();
    before += tensor.before;
    after += tensor.after;
    EXPECT_EQ(tensor.in_peak, tensor.before != Bytes(0) || tensor.after != Bytes(0)) << tensor.name;
    EXPECT_LE(tensor.before, tensor.most_before) << tensor.name;
    EXPECT_LE(tensor.after, tensor.most_after) << tensor.name;
    EXPECT_FALSE(tensor.sharding.empty()) << tensor.name;
    EXPECT_TRUE(tensor.sharding.find("part") == std::string::npos || tensor.name.find("padding ") != std::string::npos)
        << tensor.name << " " << tensor.sharding;
    EXPECT_FALSE(tensor.born.empty() || tensor.dies.empty()) << tensor.name;
  }
  EXPECT_EQ(peak, explanation.peak_delta());
  EXPECT_EQ(before, explanation.before.peak().allocated);
  EXPECT_EQ(after, explanation.after.peak().allocated);
  Nanos step;
  for (const ExplainedTime& time : explanation.times) {
    step += time.delta();
  }
  EXPECT_EQ(step, explanation.step_delta());
}

void ExpectInstantsBelowThePeak(const ExplainedSide& side) {
  EXPECT_FALSE(side.report.instants.empty());
  for (const Instant& instant : side.report.instants) {
    EXPECT_LE(instant.allocated, side.peak().allocated) << instant.name;
    Bytes live;
    for (const InstantTensors& tensors : instant.live) {
      live += tensors.bytes;
    }
    EXPECT_EQ(live, instant.allocated) << instant.name;
    EXPECT_EQ(instant.by_category.Total(), instant.allocated) << instant.name;
  }
}

TEST(Explanations, ofRandomPairsAddUpToTheByteAndTheNanosecond) {
  JobGenerator jobs(20261121);
  for (int i = 0; i < kPairs; ++i) {
    const Job first = jobs.Next(), second = jobs.Next();
    SCOPED_TRACE(first.strategy + " against " + second.strategy + ", pair " + std::to_string(i));
    const Explanation explanation = Explain(SideOf(first), SideOf(second), {});
    ExpectSums(explanation);
    ExpectInstantsBelowThePeak(explanation.before);
    ExpectInstantsBelowThePeak(explanation.after);
    const std::string words = ExplainInWords(explanation);
    EXPECT_EQ(words.find("  "), std::string::npos) << words;
    EXPECT_TRUE(words.ends_with('.')) << words;
  }
}

TEST(Explanations, ofAJobAgainstItselfAreZeroEverywhere) {
  JobGenerator jobs(7);
  for (int i = 0; i < kPairs; ++i) {
    const Job job = jobs.Next();
    SCOPED_TRACE(job.strategy + ", job " + std::to_string(i));
    const Explanation explanation = Explain(SideOf(job), SideOf(job), {});
    ExpectSums(explanation);
    EXPECT_TRUE(explanation.changes.empty());
    for (const ExplainedTensor& tensor : explanation.tensors) {
      EXPECT_EQ(tensor.delta(), Bytes(0)) << tensor.name;
      EXPECT_EQ(tensor.most_before, tensor.most_after) << tensor.name;
      EXPECT_EQ(tensor.dtype.find("->"), std::string::npos) << tensor.dtype;
    }
    for (const ExplainedTime& time : explanation.times) {
      EXPECT_EQ(time.delta(), Nanos(0)) << time.cause;
    }
  }
}

}  // namespace
}  // namespace tidemark::explanation_test
