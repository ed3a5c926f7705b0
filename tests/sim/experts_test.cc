// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>

#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_experts.h"

// Experts that are divided over ranks, as Megatron-LM divides them.

namespace tidemark::experts_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Job InTensorParallel(std::int64_t ep, std::int64_t etp) {
  Job job = OracleExperts("megatron", ep);
  job.layout.tp = 2;
  job.layout.sp = true;
  job.layout.etp = etp;
  return job;
}

/// Size and ranks per node of a group; 0: there is none.
std::pair<std::int64_t, std::int64_t> GroupOf(const Job& job, const std::string& name) {
  const StepProgram step = Sound(job);
  for (const Group& group : step.roles.front().groups) {
    if (group.name == name) {
      return {group.size, group.ranks_per_node};
    }
  }
  return {0, 0};
}

/// Elements that a step sends for weights' gradients, by group.
std::map<std::string, std::int64_t> Reduced(const Job& job) {
  std::map<std::string, std::int64_t> elements;
  const StepProgram step = Sound(job);
  const Program& program = step.roles.front();
  for (const Node& node : Unroll(program).nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && program.names[collective->name.index].ends_with("bucket")) {
      elements[program.groups[collective->group.index].name] += collective->payload_elements;
    }
  }
  return elements;
}

std::int64_t StateBytes(const Job& job) {
  return BookOf(job).between_microbatches.front()[Category::optimizer].count();
}

TEST(DividedExperts, LieOverTheRanksOfAStageByThemselves) {
  // 8 ranks a node; ranks are numbered tensor parallel first.
  const std::pair<std::int64_t, std::int64_t> none{0, 0};
  EXPECT_EQ(GroupOf(OracleExperts("megatron", 4), "ep"), std::pair(4L, 4L)) << "ranks 0 to 3";
  EXPECT_EQ(GroupOf(OracleExperts("megatron", 4), "edp"), std::pair(2L, 2L)) << "ranks 0 and 4";
  EXPECT_EQ(GroupOf(OracleExperts("megatron", 1), "ep"), none);
  EXPECT_EQ(GroupOf(InTensorParallel(8, 0), "ep"), std::pair(8L, 4L)) << "ranks 0, 2, 4 to 14";
  EXPECT_EQ(GroupOf(InTensorParallel(8, 0), "etp"), std::pair(2L, 2L)) << "ranks 0 and 1";
  EXPECT_EQ(GroupOf(InTensorParallel(8, 0), "edp"), std::pair(1L, 1L));
  EXPECT_EQ(GroupOf(InTensorParallel(8, 1), "ep"), std::pair(8L, 8L)) << "ranks 0 to 7";
  EXPECT_EQ(GroupOf(InTensorParallel(8, 1), "edp"), std::pair(2L, 1L)) << "ranks 0 and 8";
  EXPECT_EQ(GroupOf(InTensorParallel(8, 1), "etp"), none);
}

TEST(DividedExperts, AreReducedOverThoseThatHaveThem) {
  EXPECT_EQ(Reduced(OracleExperts("megatron", 1)),
            (std::map<std::string, std::int64_t>{{"dp", kOthers + kLayers * 8 * kExpert}}));
  EXPECT_EQ(Reduced(OracleExperts("megatron", 2)),
            (std::map<std::string, std::int64_t>{{"dp", kOthers}, {"edp", kLayers * 4 * kExpert}}));
  EXPECT_EQ(Reduced(OracleExperts("megatron", 8)), (std::map<std::string, std::int64_t>{{"dp", kOthers}}))
      << "every rank has experts of its own";
}

TEST(DividedExperts, HaveTheirStateDividedAmongThoseThatHaveThem) {
  constexpr std::int64_t kState = 12;  // an fp32 master and two moments
  for (const std::int64_t ep : {1, 2, 4, 8}) {
    EXPECT_EQ(StateBytes(OracleExperts("megatron-dist-opt", ep)),
              kState * (kOthers / 8 + kLayers * 8 / ep * kExpert / (8 / ep)))
        << ep;
    EXPECT_EQ(StateBytes(OracleExperts("megatron", ep)), kState * (kOthers + kLayers * 8 / ep * kExpert)) << ep;
  }
}

// Each part of what makes an expert's gradient the mean over all tokens: without it the follower of gradients objects.
TEST(DividedExperts, EveryMessageAndScaleIsNeeded) {
  const auto changed = [](const auto& change) {
    StepProgram step = Sound(OracleExperts("megatron", 2));
    for (Program& program : step.roles) {
      for (Node& node : program.nodes) {
        change(program, node);
      }
    }
    const std::vector<Finding> findings = Verify(step);
    return findings.empty() ? std::string() : findings.front().message;
  };
  const auto copied_over = [&](const std::string& group) {
    return changed([&](const Program& program, Node& node) {
      auto* collective = std::get_if<Collective>(&node);
      if (collective != nullptr && program.groups[collective->group.index].name == group &&
          collective->reduction == Reduction::sum) {
        collective->reduction = Reduction::none;
      }
    });
  };
  EXPECT_EQ(changed([](const Program&, const Node&) {}), "");
  EXPECT_THAT(copied_over("edp"), AllOf(HasSubstr("experts_"), HasSubstr("0 of another")));
  EXPECT_THAT(copied_over("dp"), HasSubstr("0 of another"));
  EXPECT_THAT(changed([](const Program&, Node& node) {
                if (auto* scale = std::get_if<Scale>(&node)) {
                  scale->factor = Rational(1);
                }
              }),
              HasSubstr("not 1/16"));
  // Tokens that come from fewer ranks than have the experts: what the others' tokens say of them is missing.
  EXPECT_THAT(changed([](const Program& program, Node& node) {
                auto* collective = std::get_if<Collective>(&node);
                if (collective != nullptr && program.groups[collective->group.index].name == "ep") {
                  collective->kind = CollectiveKind::reduce_scatter;
                }
              }),
              HasSubstr("experts_"));
}

// Which gradients tensor-parallel ranks sum: of what they had their own rows of, whatever is done again.
TEST(DividedExperts, RecomputedKeepTheirGradientsApart) {
  for (const std::int64_t etp : {0, 1}) {
    for (const std::int64_t ep : {2, 8}) {
      for (const auto policy : {Recompute::Policy::none, Recompute::Policy::full, Recompute::Policy::per_op}) {
        Job job = InTensorParallel(ep, etp);
        job.axes.recompute.policy = policy;
        const StepProgram step = Sound(job);
        const Program& program = step.roles.front();
        std::int64_t summed = 0;
        for (const Node& node : Unroll(program).nodes) {
          const auto* collective = std::get_if<Collective>(&node);
          if (collective != nullptr && program.names[collective->name.index] == "sum replicated gradients") {
            summed += collective->payload_elements;
          }
        }
        EXPECT_EQ(summed, 1024 + kLayers * (2048 + 8 * 1024)) << "norms and routers, ep " << ep << " etp " << etp;
      }
    }
  }
}

// Shard(1) is for even divisions only: 512 and 1024 rows of each expert.
TEST(TorchtitansExperts, OnMoreRanksThanThereAreExpertsAreDividedEvenly) {
  Job job = OracleJob("fsdp2-scatter-each", 1);
  std::get<Decoder>(job.network.shape).experts = {
      .count = 8, .ffn = 512, .router_fp32 = true, .layer = Experts::Layer::torchtitan};
  for (const std::int64_t ranks : {3, 8, 16, 512}) {
    job.layout.dp = ranks;
    EXPECT_TRUE(FindStrategy(job.strategy)->Accept(job).ok()) << ranks;
  }
  for (const std::int64_t ranks : {9, 12, 1024}) {
    job.layout.dp = ranks;
    EXPECT_THAT(FindStrategy(job.strategy)->Accept(job).error().Text(),
                HasSubstr("layout.dp: more ranks than experts"));
  }
}

TEST(DividedExperts, AreNoMatterOfOtherSystems) {
  for (const Strategy& strategy : AllStrategies()) {
    Job job = OracleExperts(strategy.defaults.name, 2);
    Job of_all_tokens = job;
    of_all_tokens.axes.loss_scale = LossScale::global_tokens;
    job = strategy.Accept(of_all_tokens).ok() ? of_all_tokens : job;
    const Status accepted = strategy.Accept(job);
    if (strategy.defaults.divides_experts) {
      EXPECT_TRUE(accepted.ok()) << accepted.error().Text();
    } else {
      ASSERT_FALSE(accepted.ok()) << strategy.defaults.name;
    }
  }
  EXPECT_THAT(FindStrategy("ddp-last")->Accept(OracleExperts("ddp-last", 2)).error().Text(),
              HasSubstr("does not divide experts"));
}

}  // namespace
}  // namespace tidemark::experts_test
