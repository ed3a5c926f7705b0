// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/lower/lifetime.h"
#include "sim/lower/recompute.h"
#include "sim/lower/split_backward.h"
#include "sim/predict/communication.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

// Where in the backward pass work is done again, and what it does to the rest of a program. Numbers of bytes are in
// recompute_test.cc.

namespace tidemark::recompute_programs_test {
namespace {

using Policy = Recompute::Policy;
using TpGather = Buffers::TpGather;

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

Job With(Job job, Policy policy) {
  job.axes.recompute.policy = policy;
  return job;
}

Job Divided(const char* strategy = "nanotron") {
  Job job = OracleJob(strategy, 1);
  job.layout.tp = 2;
  job.layout.sp = true;
  job.axes.packing = {true, true};
  return job;
}

Block LayerOf(const Job& job) {
  const Result<std::vector<BlockRun>> runs = BuildBlocks(job.network, PartitionOf(job));
  EXPECT_TRUE(runs.ok());
  return runs->at(1).block;
}

std::string NameOf(const Action& action) {
  return std::visit([](const auto& leaf) { return leaf.name; }, action);
}

std::vector<std::string> NamesOf(const std::vector<Action>& actions) {
  std::vector<std::string> names;
  std::transform(actions.begin(), actions.end(), std::back_inserter(names), NameOf);
  return names;
}

bool IsAgain(const std::string& name) { return name.ends_with("_recomputed"); }

/// The neighbours of what is done again in a layer's backward pass: the action before, what is repeated, the one
/// behind.
std::vector<std::string> AroundAgain(const Job& job, const Recompute& recompute) {
  const std::vector<std::string> names = NamesOf(Recomputed(LayerOf(job), recompute).backward);
  const auto begin = std::find_if(names.begin(), names.end(), IsAgain);
  const auto end = std::find_if_not(begin, names.end(), IsAgain);
  EXPECT_TRUE(std::none_of(end, names.end(), IsAgain));
  std::vector<std::string> around;
  around.push_back(begin == names.begin() ? "" : *(begin - 1));
  around.insert(around.end(), begin, end);
  around.push_back(end == names.end() ? "" : *end);
  return around;
}

constexpr Recompute kNothing{.policy = Policy::selective, .attention = false};

TEST(DoneAgain, AttentionStandsBeforeItsBackwardPass) {
  Recompute recompute = kNothing;
  recompute.attention = true;
  EXPECT_THAT(AroundAgain(Divided(), recompute),
              testing::ElementsAre("wo.input_gradient", "attention.forward_recomputed", "attention.backward"));
}

// nanotron takes a linear layer's weight gradient first, Megatron-LM its input gradient.
TEST(DoneAgain, TheActivationStandsBeforeTheLinearLayerThatReadsIt) {
  Recompute recompute = kNothing;
  recompute.activation = true;
  EXPECT_THAT(AroundAgain(Divided(), recompute),
              testing::ElementsAre("d_down_out.gather", "glu.forward_recomputed", "down.weight_gradient"));
  EXPECT_THAT(AroundAgain(Divided("megatron"), recompute),
              testing::ElementsAre("d_down_out.gather", "glu.forward_recomputed", "down.input_gradient"));
}

TEST(DoneAgain, TheFeedForwardStandsBeforeItsOwnLastLinearLayer) {
  Recompute recompute = kNothing;
  recompute.feed_forward = true;
  EXPECT_THAT(AroundAgain(Divided("megatron"), recompute),
              testing::ElementsAre("d_down_out.gather", "gu_in.gather_recomputed", "gate_up.forward_recomputed",
                                   "glu.forward_recomputed", "down.forward_recomputed", "down.scatter_recomputed",
                                   "down.input_gradient"));
}

TEST(DoneAgain, NormsStandBeforeTheGatherOfTheirOutput) {
  Recompute recompute = kNothing;
  recompute.norm = true;
  const std::vector<std::string> names = NamesOf(Recomputed(LayerOf(Divided()), recompute).backward);
  const auto behind = [&](const std::string& name) { return *(std::find(names.begin(), names.end(), name) + 1); };
  EXPECT_EQ(behind("norm1.forward_recomputed"), "qkv_in.gather_again");
  EXPECT_EQ(behind("norm2.forward_recomputed"), "gu_in.gather_again");
}

// CheckpointWithoutOutput of Megatron-LM's mla_up_proj: queries, keys and values are dropped, and made again when the
// gradient of attention's output is there; Transformer Engine's norms are part of the products behind them.
TEST(DoneAgain, LatentHeadsStandBeforeTheBackwardPassOfAttention) {
  Job job = Divided("megatron");
  Decoder& decoder = DecoderOf(job);
  decoder.kv_heads = decoder.heads;
  decoder.latent = {.kv_lora_rank = 32, .q_lora_rank = 48, .rope_head_size = 8, .value_head_size = 24};
  Recompute recompute = kNothing;
  recompute.latent_heads = true;
  const Block again = Recomputed(LayerOf(job), recompute);
  const std::vector<std::string> names = NamesOf(again.backward);
  const auto first = std::find(names.begin(), names.end(), "norm_kv.forward_recomputed");
  ASSERT_NE(first, names.end());
  const auto last = std::find(names.begin(), names.end(), "attention.backward");
  EXPECT_EQ(
      std::vector<std::string>(first, last),
      (std::vector<std::string>{"norm_kv.forward_recomputed", "kv_in.gather_recomputed", "wkv_b.forward_recomputed",
                                "latent_heads.forward_recomputed", "norm_q.forward_recomputed",
                                "q_in.gather_recomputed", "wq_b.forward_recomputed", "rope.q.forward_recomputed"}));
  for (const Action& action : again.backward) {
    ForEachTouch(action, [&](TensorId tensor, bool) {
      const std::string& name = again.tensors[tensor.index].name;
      EXPECT_TRUE(name != "q" && name != "k" && name != "v") << name << " is kept";
    });
  }
}

// torchtitan's order of products: wq_a, wq_b, wkv_a, wkv_b, wo, of which the first, third, ... are kept. (Those of the
// feed-forward part have other names here.)
TEST(DoneAgain, PerOperationKeepsLatentVectorsAndNotTheHeadsThatAreMadeOfThem) {
  Job job = OracleJob("fsdp2-scatter-each", 4);
  Decoder& decoder = DecoderOf(job);
  decoder.kv_heads = decoder.heads;
  decoder.latent = {.kv_lora_rank = 32, .q_lora_rank = 48, .rope_head_size = 8, .value_head_size = 24};
  job.axes.recompute.policy = Policy::per_op;
  const auto repeated = [&] {
    std::set<std::string> products;
    for (const std::string& name : NamesOf(Recomputed(LayerOf(job), job.axes.recompute).backward)) {
      if (name.starts_with("w") && name.ends_with(".forward_recomputed")) {
        products.insert(name.substr(0, name.find('.')));
      }
    }
    return products;
  };
  EXPECT_EQ(repeated(), (std::set<std::string>{"wq_b", "wkv_b"}));
  decoder.latent.q_lora_rank = 0;  // wq, wkv_a, wkv_b, wo
  EXPECT_EQ(repeated(), (std::set<std::string>{"wkv_a", "wo"}));
}

// A norm whose output the feed-forward reads twice stands before the feed-forward done again.
TEST(DoneAgain, PartsThatReadEachOtherStandInOrder) {
  Recompute recompute = kNothing;
  recompute.norm = recompute.feed_forward = true;
  const std::vector<std::string> names = NamesOf(Recomputed(LayerOf(Divided()), recompute).backward);
  const auto norm = std::find(names.begin(), names.end(), "norm2.forward_recomputed");
  ASSERT_NE(norm, names.end());
  EXPECT_EQ(*(norm + 1), "gu_in.gather_recomputed");
}

TEST(DoneAgain, AWholeLayerStandsBeforeEverythingAndIsWhole) {
  const Block layer = LayerOf(Divided());
  const Block again = Recomputed(layer, {.policy = Policy::full});
  std::vector<std::string> expected = NamesOf(layer.forward);
  for (std::string& name : expected) {
    name += "_recomputed";
  }
  for (const std::string& name : NamesOf(layer.backward)) {
    expected.push_back(name);
  }
  EXPECT_EQ(NamesOf(again.backward), expected);
  EXPECT_EQ(NamesOf(again.forward), NamesOf(layer.forward));
  EXPECT_EQ(again.parameters.size(), layer.parameters.size());
}

TEST(DoneAgain, PerOperationAllButWhatIsKept) {
  Job job = Divided();
  job.axes.recompute.policy = Policy::per_op;
  const Block again = Recomputed(LayerOf(job), job.axes.recompute);
  std::vector<std::string> repeated;
  for (const std::string& name : NamesOf(again.backward)) {
    if (IsAgain(name)) {
      repeated.push_back(name);
    }
  }
  // Packed, a layer has four products: qkv and gate_up are the first and the third. Scatters are waited for, not sent.
  EXPECT_THAT(repeated,
              testing::ElementsAre("norm1.forward_recomputed", "qkv_in.gather_recomputed", "rope.q.forward_recomputed",
                                   "rope.k.forward_recomputed", "wo.forward_recomputed", "wo.scatter_recomputed",
                                   "residual1.forward_recomputed", "norm2.forward_recomputed",
                                   "gu_in.gather_recomputed", "glu.forward_recomputed", "down.forward_recomputed",
                                   "down.scatter_recomputed", "residual2.forward_recomputed"));
}

// What follows the activation is read by nobody in the backward pass: the down projection takes its input's gradient
// from its weight, the norms take theirs from their inputs.
TEST(DoneAgain, OnlyWhatIsNeededWhereACompilerLooks) {
  const Block again = Recomputed(LayerOf(Divided()), {.policy = Policy::full, .needed_only = true});
  std::vector<std::string> names = NamesOf(again.backward);
  std::erase_if(names, [](const std::string& name) { return !IsAgain(name); });
  EXPECT_EQ(names.back(), "glu.forward_recomputed");
  EXPECT_THAT(names, testing::Not(testing::Contains("down.forward_recomputed")));
  EXPECT_THAT(names,
              testing::Contains("wo.forward_recomputed"));  // the second norm's input is its sum with the residual
}

// An asynchronous gather that is done again is waited for, whoever leaves out what nobody needs.
TEST(DoneAgain, WaitsForWhatIsGatheredAgain) {
  Job job = Divided();
  job.axes.buffers.tp_gather = Buffers::TpGather::async;
  for (const Policy policy : {Policy::full, Policy::per_op, Policy::selective}) {
    job.axes.recompute = {.policy = policy, .feed_forward = true, .needed_only = true};
    const Block again = Recomputed(LayerOf(job), job.axes.recompute);
    const auto count = [&](auto is) { return std::ranges::count_if(again.backward, is); };
    EXPECT_EQ(
        count([](const Action& action) { return std::holds_alternative<Await>(action) && IsAgain(NameOf(action)); }),
        count([](const Action& action) {
          const auto* collective = std::get_if<Communicate>(&action);
          return collective != nullptr && collective->asynchronous && IsAgain(NameOf(action));
        }));
  }
}

// A ring that is done again holds every step's keys until it returns, whoever leaves out what nobody needs.
TEST(DoneAgain, HoldsWhatARingHolds) {
  Job job = Divided();
  job.layout.cp = 2;
  const auto held = [&](bool needed_only) {
    const Block again = Recomputed(LayerOf(job), {.policy = Policy::full, .needed_only = needed_only});
    std::set<std::string> names;
    for (const Action& action : again.backward) {
      if (const auto* hold = std::get_if<Hold>(&action); hold != nullptr && IsAgain(hold->name)) {
        for (const TensorId tensor : hold->reads) {
          names.insert(again.tensors[tensor.index].name);
        }
      }
    }
    return names;
  };
  EXPECT_THAT(held(false),
              testing::IsSupersetOf({"0_ring_kv_recomputed", "1_ring_kv_recomputed", "1_ring_out_recomputed"}));
  EXPECT_EQ(held(true), held(false));
}

TEST(DoneAgain, BlocksThatAreNoLayersStayAsTheyAre) {
  const Job job = Divided();
  const Result<std::vector<BlockRun>> runs = BuildBlocks(job.network, PartitionOf(job));
  for (const std::size_t end : {std::size_t{0}, std::size_t{2}}) {
    const Block& block = runs->at(end).block;
    EXPECT_EQ(NamesOf(Recomputed(block, {.policy = Policy::full}).backward), NamesOf(block.backward)) << block.name;
  }
}

// Zero bubble: what is done again is done for the gradients of inputs, also what only weight gradients read; a linear
// layer's own second gather waits with its weight gradient.
TEST(DoneAgain, DoesNotWaitWithWeightGradients) {
  for (const Policy policy : {Policy::full, Policy::selective}) {
    const Recompute recompute{.policy = policy, .norm = true, .activation = true};
    const SplitBlock split = SplitBackward(Recomputed(LayerOf(Divided()), recompute), DType::bf16);
    const std::vector<std::string> names = NamesOf(split.block.backward);
    const auto later = names.begin() + static_cast<std::ptrdiff_t>(split.weights);
    EXPECT_TRUE(std::any_of(names.begin(), later, IsAgain));
    EXPECT_TRUE(std::none_of(later, names.end(), IsAgain));
    EXPECT_NE(std::find(later, names.end(), "gu_in.gather_again"), names.end());
  }
}

std::int64_t Nodes(Job job, std::int64_t layers) {
  DecoderOf(job).layers = layers;
  return static_cast<std::int64_t>(Sound(job).roles.front().nodes.size());
}

TEST(EveryNthLayer, IsALoopOverPeriods) {
  for (const char* strategy : {"nanotron", "fsdp2-scatter-each", "megatron"}) {
    Job job = With(OracleJob(strategy, 2), Policy::every_n);
    for (const std::int64_t every : {2, 3}) {
      job.axes.recompute.every = every;
      EXPECT_EQ(Nodes(job, 60), Nodes(job, 120)) << strategy << " " << every;
    }
  }
}

Bytes GatheredOverData(const Job& job) {
  Bytes payload;
  for (const CommunicationRow& row : CountCommunication(Sound(job).roles.front())) {
    payload += row.group == "dp" && row.kind == "all_gather" ? row.payload : Bytes(0);
  }
  return payload;
}

// A unit's parameters are gathered before its backward pass, and with them the forward pass in it.
TEST(FullRecompute, GathersNoParametersTwiceInABackwardPass) {
  for (const char* strategy : {"fsdp1", "fsdp2-scatter-each", "fsdp2-keep-all"}) {
    const Job job = OracleJob(strategy, 2);
    EXPECT_EQ(GatheredOverData(With(job, Policy::full)), GatheredOverData(job)) << strategy;
  }
}

// DeepSpeed fetches and releases by module: forward, forward again, backward, each by itself where nothing is kept for
// a later use or fetched ahead. Norms, 2h of a layer's 11,274,240 parameters, stay and are gathered behind the update.
TEST(FullRecompute, FetchesModulesOnceMoreUnderZero3) {
  Job job = OracleJob("deepspeed-zero3", 1);
  job.axes.shard.reuse_distance = job.axes.shard.prefetch_elements = 0;
  const auto per_layer = [](Job deep) {
    const Bytes four = GatheredOverData(deep);
    DecoderOf(deep).layers = 5;
    return (GatheredOverData(deep) - four).count();
  };
  const std::int64_t norms = 2 * 2 * 1024, others = 2 * 11'274'240 - norms;
  EXPECT_EQ(per_layer(job), 2 * others + norms);
  EXPECT_EQ(per_layer(With(job, Policy::full)), 3 * others + norms);
}

// A pool that is overwritten before it is read again is not made right by filling it a second time.
TEST(FullRecompute, DoesNotMendAnUnsafePool) {
  for (const Policy policy : {Policy::full, Policy::selective, Policy::every_n}) {
    Job job = With(Divided(), policy);
    job.axes.buffers.tp_gather = TpGather::pooled_unsafe;
    ASSERT_TRUE(FindStrategy("nanotron")->DeclaredWrong(job));
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    ASSERT_TRUE(step.ok());
    const std::vector<Finding> findings = Verify(*step);
    EXPECT_FALSE(findings.empty());
    EXPECT_TRUE(std::all_of(findings.begin(), findings.end(),
                            [](const Finding& finding) { return IsWrongResult(finding.rule); }));
  }
}

// A chunk's second forward pass, which keeps, is recomputation by itself; layers in it repeat theirs once more. Two
// towers of four layers: a layer's input of each stays.
TEST(FullRecompute, HoldsInTheChunksOfGradCache) {
  const auto repeated = [](const Job& job) {
    const StepProgram step = Sound(job);
    return Simulate(step, PriceAll(step, job.machine)).time.recompute;
  };
  const Job job = OracleJob("gradcache", 4);
  EXPECT_GT(repeated(With(job, Policy::full)), repeated(job));
  EXPECT_GT(repeated(job), Nanos(0));
}

TEST(Recompute, ProgramsOfAllSchedulesAreSoundAndBothEnginesAgree) {
  for (const Policy policy : {Policy::selective, Policy::full, Policy::every_n}) {
    for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zb_h1,
                                    Schedule::zb_h2, Schedule::dualpipe}) {
      Job job = With(Divided(), policy);
      job.accumulation_steps = 8;
      job.schedule = schedule;
      job.layout.pp = 2;
      job.layout.vpp = schedule == Schedule::interleaved ? 2 : 1;
      DecoderOf(job).layers = 8;
      job.axes.recompute.norm = job.axes.recompute.activation = true;
      const StepProgram step = Sound(job, StepKind::first);
      const std::vector<Costs> costs = PriceAll(step, job.machine);
      EXPECT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs));
    }
  }
}

}  // namespace
}  // namespace tidemark::recompute_programs_test
