// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/job/validate.h"
#include "sim/program/stages.h"
#include "sim/program/text.h"
#include "tests/sim/optimizer_book.h"

namespace tidemark::gradient_clip_test {
namespace {

using testing::HasSubstr;

Job WithClipping(const std::string& strategy) {
  Job job = OracleJob(strategy, 4);
  job.axes.optimizer_step.clip_norm = 1;
  const Status accepted = FindStrategy(strategy)->Accept(job);
  EXPECT_TRUE(accepted.ok()) << accepted.error().Text();
  return job;
}

/// All-reduces of a single number, by group.
std::vector<std::string> NormReductions(const Job& job) {
  const StepProgram step = Sound(job);
  const Program& program = step.roles.front();
  std::vector<std::string> groups;
  for (const Node& node : program.nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && collective->payload_elements == 1) {
      groups.push_back(program.groups[collective->group.index].name);
    }
  }
  return groups;
}

// torch.nn.utils.clip_grad_norm_, measured: no memory to speak of. One fp32 number for each of the 35 tensors (4 layers
// of 8, the embedding, the last norm, the head), or for the one that there is.
TEST(Clipping, TakesNoMoreMemoryThanANumberPerTensorAndTheirNorm) {
  EXPECT_EQ(Temporaries(WithClipping("ddp-last")), (35 + 1) * 4);
  EXPECT_EQ(Temporaries(WithClipping("fsdp2-scatter-each")), (35 + 1) * 4);
  EXPECT_EQ(Temporaries(WithClipping("deepspeed-zero1")), (1 + 1) * 4);
}

TEST(Clipping, SumsSquaresOverTheGroupsThatGradientsAreDividedAmong) {
  using Groups = std::vector<std::string>;
  EXPECT_EQ(NormReductions(WithClipping("ddp-last")), Groups());
  EXPECT_EQ(NormReductions(WithClipping("megatron")), Groups());
  for (const char* strategy : {"fsdp1", "fsdp2-defer", "megatron-dist-opt", "deepspeed-zero2", "deepspeed-zero3"}) {
    EXPECT_EQ(NormReductions(WithClipping(strategy)), Groups{"dp"}) << strategy;
  }
  // BF16_Optimizer's gradients are whole on every rank.
  EXPECT_EQ(NormReductions(WithClipping("deepspeed-bf16")), Groups());
  Job tensor_parallel = WithClipping("fsdp2-defer");
  tensor_parallel.layout.tp = 2;
  EXPECT_EQ(NormReductions(tensor_parallel), (Groups{"dp", "tp"}));
  Job pipeline = WithClipping("megatron");
  pipeline.layout.pp = 2;
  EXPECT_EQ(NormReductions(pipeline), Groups{"pp"});
}

// Without the distributed optimizer a rank has all gradients but those of other ranks' experts and parts of layers.
TEST(Clipping, SumsSquaresOverTheRanksWithOtherExperts) {
  using Groups = std::vector<std::string>;
  const auto reductions = [](const char* strategy, std::int64_t tp) {
    Job job = WithClipping(strategy);
    Experts& experts = std::get<Decoder>(job.network.shape).experts;
    experts.count = 8;
    experts.ffn = 512;
    job.layout.dp = 8;
    job.layout.ep = 4;
    job.layout.tp = tp;
    job.layout.sp = tp > 1;
    return NormReductions(job);
  };
  EXPECT_EQ(reductions("megatron", 1), Groups{"ep x etp"});
  EXPECT_EQ(reductions("megatron", 2), Groups{"ep x etp"});
  EXPECT_EQ(reductions("megatron-dist-opt", 1), Groups{"dp"});
  EXPECT_EQ(reductions("megatron-dist-opt", 2), (Groups{"dp", "tp"}));
}

TEST(Clipping, ReadsAndScalesEveryGradientOnce) {
  const auto moved = [](const Job& job, const std::string& kernel) {
    const Program program = Unroll(Sound(job).roles.front());
    std::int64_t bytes = 0;
    for (const Node& node : program.nodes) {
      const auto* compute = std::get_if<Compute>(&node);
      if (compute != nullptr && program.names[compute->name.index] == kernel) {
        bytes += std::get<Pointwise>(compute->op).bytes_moved;
      }
    }
    return bytes;
  };
  // bf16 gradients of DDP; this rank's quarter of ZeRO-3, whose norm is that of bf16 partitions and which scales the
  // fp32 copies of them.
  EXPECT_EQ(moved(WithClipping("ddp-last"), "gradient norms"), kElements * 2);
  EXPECT_EQ(moved(WithClipping("ddp-last"), "clip gradients"), kElements * 2 * 2);
  EXPECT_EQ(moved(WithClipping("deepspeed-zero3"), "gradient norms"), kElements / 4 * 2);
  EXPECT_EQ(moved(WithClipping("deepspeed-zero3"), "clip gradients"), kElements / 4 * 4 * 2);
}

/// Kernels of the optimizer on one rank, in the order in which they run, without the stages that they are for.
std::vector<std::string> OptimizerKernels(const Job& job) {
  const Program program = Unroll(Sound(job).roles.front());
  std::vector<std::string> kernels;
  for (const Node& node : program.nodes) {
    const auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && compute->work == Work::optimizer) {
      kernels.emplace_back(WithoutStage(program.names[compute->name.index]));
    }
  }
  return kernels;
}

TEST(Clipping, ChunksOfARankHaveOneNormAndAreMeasuredBeforeTheFirstIsClipped) {
  for (const char* strategy : {"ddp-last", "fsdp2-keep-all", "megatron", "megatron-dist-opt"}) {
    Job job = WithClipping(strategy);
    job.layout.pp = job.layout.vpp = 2;
    job.schedule = Schedule::interleaved;
    ASSERT_TRUE(Validate(job).ok()) << Validate(job).error().Text();
    const std::vector<std::string> kernels = OptimizerKernels(job);
    const auto first = std::ranges::find(kernels, "clip gradients");
    EXPECT_EQ(std::ranges::count(kernels, "norm of norms"), 1) << strategy;
    EXPECT_EQ(std::find(first, kernels.end(), "gradient norms"), kernels.end()) << strategy;
    EXPECT_EQ(std::count(kernels.begin(), first, "gradient norms"), std::count(first, kernels.end(), "clip gradients"));
    EXPECT_EQ(NormReductions(job).back(), "pp");
    EXPECT_EQ(std::ranges::count(NormReductions(job), "pp"), 1) << strategy;
  }
}

TEST(Clipping, MegatronsHostWaitsForTheNorm) {
  const auto syncs = [](const Job& job) {
    const std::vector<Node> nodes = Sound(job).roles.front().nodes;
    return std::count_if(nodes.begin(), nodes.end(),
                         [](const Node& node) { return std::holds_alternative<HostSync>(node); });
  };
  EXPECT_EQ(syncs(WithClipping("megatron")) - syncs(OracleJob("megatron", 4)), 1);
  EXPECT_EQ(syncs(WithClipping("ddp-last")), syncs(OracleJob("ddp-last", 4)));
}

// Verify follows gradients through the scaling: one that is not by the coefficient alone is found.
TEST(Clipping, AWrongFactorBesideTheCoefficientIsFound) {
  StepProgram step = Sound(WithClipping("ddp-last"));
  Program& program = step.roles.front();
  for (Node& node : program.nodes) {
    auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && program.names[compute->name.index] == "clip gradients") {
      compute->scale = Rational(1, 2);
    }
  }
  const std::vector<Finding> findings = Verify(step);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings.front().rule, Finding::Rule::wrong_factor);
}

TEST(Clipping, IsRefusedWhereItIsNotModelled) {
  const auto refused = [](const char* strategy) {
    Job job = OracleJob(strategy, 4);
    job.axes.optimizer_step.clip_norm = 1;
    return FindStrategy(strategy)->Accept(job).error().Text();
  };
  EXPECT_THAT(refused("alpa"), HasSubstr("optax.clip_by_global_norm"));
  EXPECT_THAT(refused("jax-scan"), HasSubstr("optax.clip_by_global_norm"));
  EXPECT_THAT(refused("colossalai-zero1"), HasSubstr("nothing would change"));
  EXPECT_THAT(refused("colossalai-gemini"), HasSubstr("HybridAdam"));
  Job pipeline = WithClipping("nanotron");
  pipeline.layout.pp = pipeline.layout.vpp = 2;
  pipeline.schedule = Schedule::interleaved;
  EXPECT_THAT(FindStrategy("nanotron")->Accept(pipeline).error().Text(), HasSubstr("no schedule with several chunks"));
  pipeline.layout.vpp = 1;
  pipeline.schedule = Schedule::dualpipe;
  EXPECT_THAT(Validate(pipeline).error().Text(), HasSubstr("two ranks hold each stage"));
  pipeline.schedule = Schedule::one_f_one_b;
  EXPECT_TRUE(Validate(pipeline).ok());
  pipeline.network.trainable = {"head.*"};
  EXPECT_THAT(Validate(pipeline).error().Text(), HasSubstr("no gradients"));
}

}  // namespace
}  // namespace tidemark::gradient_clip_test
