// SPDX-License-Identifier: Apache-2.0
// Experts on several ranks: which parts of them a rank has, which tokens they get, and that gradients and norms are
// those of one rank that has them all.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/profiler/execute/own_programs.h"

namespace tidemark::expert_parallel_test {
namespace {

struct Laid {
  std::int64_t dp = 1, tp = 1, cp = 1, ep = 1, etp = 0;
  const char* strategy = "megatron";
  std::int64_t replicas = 1;

  friend std::ostream& operator<<(std::ostream& out, const Laid& laid) {
    return out << fmt::format("{} dp {} tp {} cp {} ep {} etp {}", laid.strategy, laid.dp, laid.tp, laid.cp, laid.ep,
                              laid.etp);
  }
};

Experts& ExpertsIn(Job& job) { return std::get<Decoder>(job.network.shape).experts; }

Job WithExperts(const Laid& laid) {
  Job job = SmallJob(laid.strategy);
  std::get<Decoder>(job.network.shape).kv_heads = 4;
  Experts& experts = ExpertsIn(job);
  experts.count = 4;
  experts.per_token = 2;
  experts.ffn = 48;
  job.layout.dp = laid.dp;
  job.layout.tp = laid.tp;
  job.layout.sp = laid.tp > 1;
  job.layout.cp = laid.cp;
  job.layout.ep = laid.ep;
  job.layout.etp = laid.etp;
  job.axes.shard.replicas = laid.replicas;
  return job;
}

Job OfTorchtitan(const Laid& laid) {
  Job job = WithExperts(laid);
  ExpertsIn(job).layer = Experts::Layer::torchtitan;
  ExpertsIn(job).router_fp32 = true;
  return job;
}

const std::vector<Laid> kLaid = {
    {.dp = 2, .ep = 2},
    {.dp = 4, .ep = 2},
    {.dp = 4, .ep = 4},
    {.tp = 2},
    {.tp = 2, .ep = 2, .etp = 1},
    {.dp = 2, .tp = 2, .ep = 2},
    {.cp = 2, .ep = 2},
    {.dp = 2, .ep = 2, .strategy = "megatron-dist-opt"},
    {.dp = 4, .ep = 2, .strategy = "megatron-dist-opt"},
    {.dp = 2, .tp = 2, .ep = 2, .strategy = "megatron-dist-opt"},
    {.dp = 2, .tp = 2, .ep = 2, .etp = 1, .strategy = "megatron-dist-opt"},
    {.dp = 2, .tp = 2, .strategy = "ddp-last"},
    {.dp = 2, .tp = 2, .strategy = "fsdp2-scatter-each"},
    {.dp = 4, .tp = 2, .strategy = "hsdp", .replicas = 2},
    {.dp = 2, .tp = 2, .strategy = "deepspeed-zero2"},
    {.dp = 2, .tp = 2, .strategy = "nanotron"},
};

class ExpertParallel : public testing::TestWithParam<Laid> {};

TEST_P(ExpertParallel, RanksHaveEachNumberOfAnExpertOnceForEachThatSharesIt) {
  const Job job = WithExperts(GetParam());
  for (const char* name : {"layer.experts_up", "layer.experts_down"}) {
    std::map<std::int64_t, std::int64_t> times;
    std::int64_t whole = 0;
    for (std::int64_t rank = 0; rank < job.Ranks(); ++rank) {
      const Model model = ModelAt(job, rank);
      const Model::Weight weight = *model.WeightOf(name);
      whole = weight.parameter->elements_full;
      for (const std::int64_t place : model.PlacesOf(weight)) {
        ++times[place];
      }
    }
    EXPECT_EQ(std::ssize(times), whole) << name;
    EXPECT_EQ(times.begin()->first, 0);
    EXPECT_EQ(times.rbegin()->first, whole - 1);
    for (const auto& [place, count] : times) {
      ASSERT_EQ(count, job.layout.ExpertGradientRanks()) << name << " at " << place;
    }
  }
}

// Each has its experts whole, one behind the other.
TEST(TorchtitanExperts, AreDividedOneByOne) {
  Job job = OfTorchtitan({.dp = 4, .ep = 2});
  for (const char* name : {"layer.experts_w1", "layer.experts_w2", "layer.experts_w3"}) {
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      const Model model = ModelAt(job, rank);
      const std::vector<std::int64_t> places = model.PlacesOf(*model.WeightOf(name));
      ASSERT_EQ(places.size(), 2U * 48 * 64) << name;
      EXPECT_EQ(places.front(), rank % 2 * 2 * 48 * 64) << name << " of rank " << rank;
      EXPECT_EQ(places.back() - places.front(), 2 * 48 * 64 - 1);
    }
  }
}

/// Of a step by kernels of this kind, with those of the processor that has all samples and experts.
void ExpectGradientsOfOneRank(const Job& job, kernels::Queue::Kind kind) {
  const std::vector<RunOutcome> ranks = RanOwnPrograms(job, 1, Exact(), kind);
  RunOptions options = Exact();
  options.choices = &ranks.front().choices;
  const RunOutcome whole = Executed(OneBatch(job), 1, options);
  ExpectGradientsOf(whole, job, ranks);
}

TEST_P(ExpertParallel, GradientsAreThoseOfOneRankThatHasAllExperts) {
  for (const auto dispatcher : {Experts::Dispatcher::all_to_all, Experts::Dispatcher::all_gather}) {
    Job job = WithExperts(GetParam());
    ExpertsIn(job).dispatcher = dispatcher;
    ExpectGradientsOfOneRank(job, kernels::Queue::Kind::cpu);
    ExpectGradientsOfOneRank(job, kernels::Queue::Kind::host);
  }
}

TEST(TorchtitanExperts, HaveTheGradientsOfOneRankThatHasThemAll) {
  for (const Laid& laid : {Laid{.dp = 1}, Laid{.dp = 2, .ep = 2}, Laid{.dp = 4, .ep = 2}, Laid{.cp = 2, .ep = 2},
                           Laid{.tp = 2, .ep = 2, .etp = 1}, Laid{.dp = 2, .strategy = "fsdp2-scatter-each"},
                           Laid{.dp = 4, .strategy = "hsdp", .replicas = 2}}) {
    for (const bool fused : {false, true}) {
      Job job = OfTorchtitan(laid);
      job.axes.buffers.fused_glu = fused;
      ExpertsIn(job).shared_ffn = fused ? 32 : 0;
      ExpectGradientsOfOneRank(job, kernels::Queue::Kind::cpu);
      ExpectGradientsOfOneRank(job, kernels::Queue::Kind::host);
    }
  }
}

// What a GPU computes, on the host: with all of a layer's tables.
TEST(ExpertsOfOneRank, HaveTheirGradientsByKernelsOfAGpu) {
  for (const auto dispatcher : {Experts::Dispatcher::all_to_all, Experts::Dispatcher::all_gather}) {
    for (const bool fused : {false, true}) {
      Job job = WithExperts({});
      ExpertsIn(job).dispatcher = dispatcher;
      ExpertsIn(job).shared_ffn = 32;
      ExpertsIn(job).shared_gate = true;
      job.axes.buffers.fused_glu = fused;
      ExpectGradientsOfOneRank(job, kernels::Queue::Kind::host);
    }
  }
}

TEST_P(ExpertParallel, TokensGoToAllExpertsAlikeAndToDifferentRanks) {
  const Job job = WithExperts(GetParam());
  const std::vector<RunOutcome> ranks = RanOwnPrograms(job, 1, Exact());
  const ExpertChoices& choices = ranks.front().choices;
  const std::int64_t own = 4 / job.layout.ep;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    std::vector<std::int64_t> tokens(4);
    for (std::int64_t token = 0; token < choices.tokens() / 2; ++token) {
      std::array<std::int64_t, 2> experts{};
      choices.Get(layer, token / job.sequence_length, token % job.sequence_length, experts);
      EXPECT_NE(experts[0], experts[1]);
      EXPECT_EQ(experts[0] / own == experts[1] / own, job.layout.ep == 1);
      ++tokens[static_cast<std::size_t>(experts[0])];
      ++tokens[static_cast<std::size_t>(experts[1])];
    }
    EXPECT_EQ(std::set<std::int64_t>(tokens.begin(), tokens.end()).size(), 1U);
  }
}

// Where a token goes to all experts round-robin is what a router does, and losses are those of one rank. Gradients are
// clipped to a tenth, so that a norm in which some rank's part is missing, or counted twice, shows in the next loss.
TEST_P(ExpertParallel, LossesBehindClippedStepsAreThoseOfOneRank) {
  Job job = WithExperts(GetParam());
  ExpertsIn(job).per_token = 4;
  job.axes.optimizer_step.clip_norm = 0.1;
  Job simple = job;  // AdamW hardly sees how long a gradient is
  simple.optimizer = OptimizerKind::sgd;
  job = FindStrategy(GetParam().strategy)->Accept(simple) ? simple : job;
  Job one = WithExperts({});
  one.network = job.network;
  one.optimizer = job.optimizer;
  one.axes.optimizer_step = job.axes.optimizer_step;
  one.micro_batch_size = job.micro_batch_size * job.layout.dp;
  const RunOptions options{.seed = 7, .exact = true};
  const std::vector<RunOutcome> ranks = RanOwnPrograms(job, 4, options);
  const RunOutcome alone = Executed(one, 4, options);
  one.axes.optimizer_step.clip_norm = 0.11;
  const RunOutcome other = Executed(one, 4, options);
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_NEAR(*ranks.front().steps[step].loss, *alone.steps[step].loss, 1e-11) << "step " << step;
  }
  EXPECT_GT(std::abs(*other.steps[3].loss - *alone.steps[3].loss), 1e-9) << "clipping is nothing to the loss";
}

/// What the executor finds wrong with a job's programs before it runs them; empty: nothing.
std::string FaultOf(const Job& job) {
  const Status checked = CheckExecutable(job, LoweredSteps(job, 3).steps(), {});
  return checked.ok() ? "" : checked.error().Text();
}

// A stage that begins with a layer, whose pooled inputs of the attention and of shared experts are both smaller than
// the tokens that its experts gather.
TEST(PooledExperts, OfALaterStageHaveMemoryInTheFirstStep) {
  Job job = WithExperts({.dp = 2, .tp = 2, .ep = 2});
  job.layout.pp = 2;
  ExpertsIn(job).dispatcher = Experts::Dispatcher::all_gather;
  ExpertsIn(job).shared_ffn = 32;
  EXPECT_EQ(FaultOf(job), "");
}

// The gradient of a router in fp32 is a weight's like any other when it waits.
TEST(RouterGradients, ThatArePutAsideHaveTheWeightsDType) {
  for (const Schedule schedule : {Schedule::zb_h1, Schedule::zb_h2, Schedule::dualpipe}) {
    Job job = WithExperts({});
    job.layout.pp = 2;
    job.accumulation_steps = 4;
    job.schedule = schedule;
    ExpertsIn(job).router_fp32 = true;
    EXPECT_EQ(FaultOf(job), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ExpertParallel, testing::ValuesIn(kLaid));

}  // namespace
}  // namespace tidemark::expert_parallel_test
