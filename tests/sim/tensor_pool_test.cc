// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/tensor_pool.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/program/hazards.h"
#include "sim/program/verify.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

namespace tidemark::tensor_pool_test {
namespace {

using TpGather = Buffers::TpGather;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

/// nanotron with tensor parallelism over two ranks and packed q, k, v.
Job PoolJob(TpGather gather, std::int64_t layers, std::int64_t microbatches) {
  Job job = OracleJob("nanotron", microbatches);
  std::get<Decoder>(job.network.shape).layers = layers;
  job.layout.tp = 2;
  job.layout.sp = true;
  job.axes.packing = {true, true};
  job.axes.buffers.tp_gather = gather;
  return job;
}

std::vector<std::string> HazardsOf(const Job& job, StepKind kind) {
  const Result<StepProgram> step = Lower(job, kind);
  EXPECT_TRUE(step.ok());
  std::vector<std::string> all;
  for (const Program& program : step->roles) {
    for (const Hazard& hazard : FindHazards(program)) {
      EXPECT_EQ(program.buffers[hazard.buffer.index].name, "pool dist");
      all.push_back(fmt::format("mb{} L{} {}: {} by {}", hazard.microbatch, hazard.layer.value_or(-1), hazard.read_by,
                                hazard.value, hazard.overwritten_by));
    }
  }
  return all;
}

/// What goes wrong in every microbatch, by nanotron's first pool (semantics 5.3, item 1): each weight gradient of a
/// column-parallel linear but the head's reads what the row-parallel linear behind it has gathered.
std::vector<std::string> WeightGradients(std::int64_t microbatch) {
  std::vector<std::string> all;
  for (const std::int64_t layer : {0, 1}) {
    all.push_back(
        fmt::format("mb{0} L{1} layer.gate_up.weight_gradient: layer.gu_in[0][{1}] by "
                    "layer.d_down_out.gather",
                    microbatch, layer));
    all.push_back(fmt::format("mb{0} L{1} layer.qkv.weight_gradient: layer.qkv_in[0][{1}] by layer.d_wo_out.gather",
                              microbatch, layer));
  }
  return all;
}

/// Item 2: the embedding's output, where it stands in the large block.
std::vector<std::string> EmbeddingOutput(std::int64_t microbatch) {
  return {
      fmt::format("mb{0} L0 layer.residual1.forward: embedding.embedding_scattered by layer.wo.scatter", microbatch),
      fmt::format("mb{0} L0 layer.norm1.backward: embedding.embedding_scattered by "
                  "layer.qkv_in.scatter_gradient",
                  microbatch)};
}

template <class... Lists>
std::vector<std::string> Together(Lists... lists) {
  std::vector<std::string> all;
  (all.insert(all.end(), lists.begin(), lists.end()), ...);
  return all;
}

TEST(TensorPool, TheFirstVersionClobbersTenValuesInItsFirstStep) {
  const std::vector<std::string> expected = Together(WeightGradients(0), WeightGradients(1), EmbeddingOutput(1));
  EXPECT_EQ(expected.size(), 10U);
  EXPECT_THAT(HazardsOf(PoolJob(TpGather::pooled_unsafe, 2, 2), StepKind::first), UnorderedElementsAreArray(expected));
}

TEST(TensorPool, TheFirstVersionClobbersTwelveValuesInASteadyStep) {
  const std::vector<std::string> expected =
      Together(WeightGradients(0), WeightGradients(1), EmbeddingOutput(0), EmbeddingOutput(1));
  EXPECT_EQ(expected.size(), 12U);
  EXPECT_THAT(HazardsOf(PoolJob(TpGather::pooled_unsafe, 2, 2), StepKind::steady), UnorderedElementsAreArray(expected));
}

TEST(TensorPool, TheOtherWaysClobberNothing) {
  for (const TpGather gather : {TpGather::fresh, TpGather::cached, TpGather::pooled, TpGather::async}) {
    for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
      EXPECT_THAT(HazardsOf(PoolJob(gather, 3, 2), kind), IsEmpty());
      Sound(PoolJob(gather, 3, 2), kind);
    }
  }
}

TEST(TensorPool, TheFirstVersionIsWrongAndNothingElse) {
  for (const std::int64_t layers : {1, 2, 7}) {
    for (const StepKind kind : {StepKind::first, StepKind::steady}) {
      const Result<StepProgram> step = Lower(PoolJob(TpGather::pooled_unsafe, layers, 3), kind);
      ASSERT_TRUE(step.ok());
      const std::vector<Finding> findings = Verify(*step, 1000);
      EXPECT_FALSE(findings.empty());
      for (const Finding& finding : findings) {
        EXPECT_EQ(finding.rule, Finding::Rule::clobbered_value) << finding.message;
      }
    }
  }
}

// DualPipe splits some backward passes and leaves others whole; both have the same buffers.
TEST(TensorPool, TheFirstVersionIsWrongAndNothingElseWhereSomeBackwardPassesAreSplit) {
  for (const Schedule schedule : {Schedule::dualpipe, Schedule::zb_h1, Schedule::interleaved}) {
    for (const StepKind kind : {StepKind::first, StepKind::steady}) {
      Job job = PoolJob(TpGather::pooled_unsafe, 4, 4);
      job.layout.pp = 2;
      job.layout.vpp = schedule == Schedule::interleaved ? 2 : 1;
      job.schedule = schedule;
      const Result<StepProgram> step = Lower(job, kind);
      ASSERT_TRUE(step.ok());
      const std::vector<Finding> findings = Verify(*step, 1000);
      EXPECT_FALSE(findings.empty());
      for (const Finding& finding : findings) {
        EXPECT_EQ(finding.rule, Finding::Rule::clobbered_value) << finding.message;
      }
      EXPECT_EQ(Audit(*step, job.machine).live[Category::tp_gather].count() % 8'388'608, 0) << "only pools stay";
    }
  }
}

// n h / t = 4096 x 1024 / 2 elements of bf16 are asked for first, n h next.
TEST(TensorPool, ThePoolIsReplacedWhenALargerTensorIsAskedFor) {
  const Job job = PoolJob(TpGather::pooled_unsafe, 2, 2);
  const Result<StepProgram> step = Lower(job, StepKind::first);
  ASSERT_TRUE(step.ok());
  std::vector<std::string> pools;
  for (const Buffer& buffer : step->roles.front().buffers) {
    if (buffer.name.find("pool dist") != std::string::npos) {
      pools.push_back(fmt::format("{} {} {}", buffer.name, buffer.bytes().count(), buffer.kept));
    }
  }
  EXPECT_THAT(pools, UnorderedElementsAreArray({"pool dist 8388608 true", "first pool dist 4194304 false"}));
}

TEST(TensorPool, OnlyTheLargeBlockStays) {
  for (const StepKind kind : {StepKind::first, StepKind::steady}) {
    const Job job = PoolJob(TpGather::pooled_unsafe, 2, 2);
    const Result<StepProgram> step = Lower(job, kind);
    ASSERT_TRUE(step.ok());
    EXPECT_EQ(Audit(*step, job.machine).live[Category::tp_gather].count(), 8'388'608);
  }
}

}  // namespace
}  // namespace tidemark::tensor_pool_test
