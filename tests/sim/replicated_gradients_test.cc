// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

// Sequence parallelism gives each of t tensor-parallel ranks its rows of the residual stream, so that a gradient of
// what all ranks hold and apply to those rows is a partial sum. Of the oracle model these are two norms in each of 4
// layers and the head's, of 1,024 elements: 9,216 elements in 9 tensors. With t = 2 an all-reduce of S bytes puts S on
// the wire.

namespace tidemark::replicated_gradients_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kTensors = 2 * 4 + 1, kWidth = 1024;

Job Scattered(const std::string& strategy, std::int64_t microbatches) {
  Job job = OracleJob(strategy, microbatches);
  job.layout.tp = 2;
  job.layout.sp = true;
  return job;
}

bool SumsReplicated(const Program& program, const Node& node) {
  const auto* collective = std::get_if<Collective>(&node);
  return collective != nullptr && program.names[collective->name.index].ends_with("sum replicated gradients");
}

struct Sums {
  std::int64_t count = 0, elements = 0;
  DType dtype = DType::bf16;
};

/// What one role sums over the tensor-parallel group.
Sums SumsOf(const Program& program) {
  Sums sums;
  const Program flat = Unroll(program);
  for (const Node& node : flat.nodes) {
    if (SumsReplicated(flat, node)) {
      const auto& collective = std::get<Collective>(node);
      EXPECT_EQ(flat.groups[collective.group.index].name, "tp");
      EXPECT_EQ(collective.kind, CollectiveKind::all_reduce);
      EXPECT_EQ(collective.reduction, Reduction::sum);
      ++sums.count;
      sums.elements += collective.payload_elements;
      sums.dtype = collective.dtype;
    }
  }
  return sums;
}

void ExpectSums(const Job& job, std::int64_t count, std::int64_t elements, DType dtype) {
  const Sums sums = SumsOf(Sound(job).roles.front());
  EXPECT_EQ(sums.count, count) << job.strategy;
  EXPECT_EQ(sums.elements, elements) << job.strategy;
  EXPECT_EQ(sums.dtype, dtype) << job.strategy;
}

// nanotron, parallel/tied_parameters.py: sync_tied_weights_gradients, with mark_unsharded_params_as_tied_across_tp.
TEST(ReplicatedGradients, NanotronSumsItsAccumulatorsInOneCollectiveAStep) {
  for (const std::int64_t microbatches : {1, 4}) {
    ExpectSums(Scattered("nanotron", microbatches), 1, kTensors * kWidth, DType::fp32);
  }
}

TEST(ReplicatedGradients, WithZeroOneNanotronSumsWholeAccumulatorsToo) {
  Job job = Scattered("nanotron", 2);
  job.axes.shard.optimizer = true;
  ExpectSums(job, 1, kTensors * kWidth, DType::fp32);
}

// Megatron-LM, core/distributed/finalize_model_grads.py: _allreduce_layernorm_grads.
TEST(ReplicatedGradients, MegatronSumsItsMainGradientsInOneCollectiveAStep) {
  for (const char* strategy : {"megatron", "megatron-dist-opt"}) {
    ExpectSums(Scattered(strategy, 4), 1, kTensors * kWidth, DType::fp32);
  }
  Job job = Scattered("megatron-dist-opt", 4);
  job.axes.precision.accumulate = job.axes.precision.reduce = DType::bf16;
  ExpectSums(job, 1, kTensors * kWidth, DType::bf16);
}

// Beside the three statistics of a divided vocabulary, 4 bytes for each of 4,096 tokens in each microbatch.
TEST(ReplicatedGradients, AreCountedInCommunication) {
  for (const char* strategy : {"nanotron", "megatron"}) {
    Job job = Scattered(strategy, 4);
    job.axes.optimizer_step.clip_norm = 0;
    std::int64_t found = 0;
    for (const CommunicationRow& row : CountCommunication(Sound(job).roles.front())) {
      if (row.kind == "all_reduce" && row.group == "tp") {
        EXPECT_EQ(row.count, 4 * 3 + 1) << strategy;
        EXPECT_EQ(row.payload.count(), 4 * 3 * 4096 * 4 + 36'864) << strategy;
        EXPECT_EQ(row.wire, row.payload) << strategy;
        ++found;
      }
    }
    EXPECT_EQ(found, 1) << strategy;
  }
}

/// Names of what issues collectives and of the optimizer's phase, in issue order, for groups dp and tp of gradients.
std::vector<std::string> EndOfStep(const Program& program) {
  std::vector<std::string> names;
  const Program flat = Unroll(program);
  for (const Node& node : flat.nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    const auto* begin = std::get_if<Begin>(&node);
    if (begin != nullptr && begin->phase == Phase::optimizer) {
      names.emplace_back("optimizer");
    } else if (collective != nullptr &&
               (SumsReplicated(flat, node) || flat.groups[collective->group.index].name == "dp")) {
      names.push_back(flat.names[collective->name.index]);
    }
  }
  return names;
}

TEST(ReplicatedGradients, AreSummedBehindTheDataParallelReductionAndBeforeTheOptimizer) {
  for (const char* strategy : {"nanotron", "megatron"}) {
    const std::vector<std::string> names = EndOfStep(Sound(Scattered(strategy, 2)).roles.front());
    ASSERT_GE(names.size(), 3U);
    EXPECT_EQ(names.back(), "optimizer");
    EXPECT_EQ(names[names.size() - 2], "sum replicated gradients");
    EXPECT_EQ(names[names.size() - 3], "reduce bucket");
  }
}

/// The most bytes of buffers of this name that are ever alive at once.
class MostOf : public Listener {
 public:
  MostOf(const Program& program, std::string prefix) : program_(program), prefix_(std::move(prefix)) {}
  void OnAlloc(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, 1); }
  void OnFree(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, -1); }
  void OnSlice(StreamId, NameId, Nanos, Nanos) override {}
  void OnBegin(const Begin&, std::int64_t, Nanos) override {}
  void OnEnd(Phase, Nanos) override {}
  std::int64_t most = 0, live = 0;

 private:
  void Count(const BufferInstance& instance, std::int64_t sign) {
    const Buffer& buffer = program_.buffers[instance.buffer.index];
    if (buffer.name.starts_with(prefix_)) {
      live += buffer.bytes().count() * sign;
      most = std::max(most, live);
    }
  }
  const Program& program_;
  std::string prefix_;
};

std::int64_t MostFlat(const Job& job) {
  const StepProgram step = Sound(job);
  MostOf most(step.roles.front(), "flat main gradient of");
  std::vector<Listener*> listeners(step.roles.size(), nullptr);
  listeners.front() = &most;
  Simulate(step, PriceAll(step, job.machine), listeners);
  EXPECT_EQ(most.live, 0);
  return most.most;
}

TEST(ReplicatedGradients, MegatronsFlatTensorIsMadeForThemAndFreed) {
  EXPECT_EQ(MostFlat(Scattered("megatron", 4)), 36'864);
  EXPECT_EQ(MostFlat(Scattered("nanotron", 4)), 0);
}

TEST(ReplicatedGradients, MegatronSumsThoseOfAllChunksTogether) {
  Job job = Scattered("megatron", 4);
  job.layout.pp = 2;
  job.layout.vpp = 2;
  job.schedule = Schedule::interleaved;
  const StepProgram step = Sound(job);
  // Two chunks of one layer each; the second rank has the head's norm.
  const Sums first = SumsOf(step.roles.at(0)), second = SumsOf(step.roles.at(1));
  EXPECT_EQ(first.count, 1);
  EXPECT_EQ(first.elements, 4 * kWidth);
  EXPECT_EQ(second.count, 1);
  EXPECT_EQ(second.elements, 5 * kWidth);
}

// PyTorch, fsdp/_fully_shard/_fsdp_param.py: a DTensor of partial sums is redistributed where a unit's gradients are
// collected for their reduction, in the dtype in which they were accumulated.
TEST(ReplicatedGradients, FullyShardSumsEachWhereItReducesItsUnit) {
  ExpectSums(Scattered("fsdp2-scatter-each", 4), 4 * kTensors, 4 * kTensors * kWidth, DType::bf16);
  ExpectSums(Scattered("fsdp2-defer", 4), kTensors, kTensors * kWidth, DType::fp32);
  ExpectSums(Scattered("fsdp2-defer", 1), kTensors, kTensors * kWidth, DType::bf16);
}

TEST(ReplicatedGradients, OtherSystemsSumEachAsSoonAsItIsMade) {
  for (const char* strategy : {"ddp-last", "ddp-every", "fsdp1", "deepspeed-zero2", "colossalai-zero2", "jax-scan"}) {
    ExpectSums(Scattered(strategy, 4), 4 * kTensors, 4 * kTensors * kWidth, DType::bf16);
  }
}

TEST(ReplicatedGradients, EveryStrategyThatScattersRowsGetsThemRight) {
  for (const Strategy& strategy : AllStrategies()) {
    for (const std::int64_t microbatches : {1, 2, 3}) {
      Job job = Scattered(strategy.defaults.name, microbatches);
      if (!strategy.Accept(job).ok()) {
        job.axes.shard.replicas = 2;  // of a system that is about replicas
      }
      const Result<StepProgram> step = Lower(job, StepKind::steady);
      if (!step.ok() || strategy.DeclaredWrong(job)) {
        continue;
      }
      for (const Finding& finding : Verify(*step)) {
        ADD_FAILURE() << strategy.defaults.name << ": " << finding.message;
      }
      EXPECT_GT(SumsOf(step->roles.front()).count, 0) << strategy.defaults.name;
    }
  }
}

TEST(ReplicatedGradients, WhatIsNotScatteredOrNotTrainedIsNotSummed) {
  for (const char* strategy : {"nanotron", "megatron", "fsdp2-defer", "ddp-last"}) {
    Job job = Scattered(strategy, 2);
    job.layout.sp = false;
    EXPECT_EQ(SumsOf(Sound(job).roles.front()).count, 0) << strategy;
    job = Scattered(strategy, 2);
    job.network.trainable = {"*.wq"};
    EXPECT_EQ(SumsOf(Sound(job).roles.front()).count, 0) << strategy;
  }
}

// A layer: weights and biases of two norms, biases behind two reductions; the head's norm; 2,048 learned positions.
TEST(ReplicatedGradients, BiasesBehindAReductionAndLearnedPositionsAreAmongThem) {
  for (const char* strategy : {"megatron", "nanotron", "ddp-last"}) {
    Job job = Scattered(strategy, 1);
    auto& decoder = std::get<Decoder>(job.network.shape);
    decoder.norm = Decoder::Norm::layer;
    decoder.linear_bias = true;
    decoder.positions = 2048;
    EXPECT_EQ(SumsOf(Sound(job).roles.front()).elements, (4 * 6 + 2 + 2048) * kWidth) << strategy;
  }
}

// The worked model's heads have 64 numbers: two weights of them in each of 4 layers.
TEST(ReplicatedGradients, OfNormsOfQueriesAndKeysAreSummedWhetherRowsAreScatteredOrNot) {
  for (const char* strategy : {"megatron", "megatron-dist-opt", "nanotron", "fsdp2-defer"}) {
    Job job = Scattered(strategy, 2);
    std::get<Decoder>(job.network.shape).qk_norm = true;
    EXPECT_EQ(SumsOf(Sound(job).roles.front()).elements, kTensors * kWidth + 4 * 2 * 64) << strategy;
    job.layout.sp = false;
    EXPECT_EQ(SumsOf(Sound(job).roles.front()).elements, 4 * 2 * 64) << strategy;
    job.layout.tp = 1;
    EXPECT_EQ(SumsOf(Sound(job).roles.front()).elements, 0) << strategy;
  }
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zb_h1, Schedule::dualpipe}) {
    Job halves = Scattered("megatron", 4);
    std::get<Decoder>(halves.network.shape).qk_norm = true;
    halves.layout.sp = false;
    halves.layout.pp = 2;
    halves.schedule = schedule;
    const std::int64_t stages = schedule == Schedule::dualpipe ? 2 : 1;  // on each rank
    EXPECT_EQ(SumsOf(Sound(halves).roles.front()).elements, stages * 2 * 2 * 64);
  }
  Job each = Scattered("ddp-last", 4);
  std::get<Decoder>(each.network.shape).qk_norm = true;
  each.layout.sp = false;
  ExpectSums(each, 4 * 2 * 4, 4 * 2 * 4 * 64, DType::bf16);
}

/// Changes the role's nodes from the first sum on: `change(nodes, position of the sum)`.
template <class Change>
std::string FindingWhere(const Job& job, Change change) {
  Program program = Unroll(Sound(job).roles.front());
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (SumsReplicated(program, program.nodes[i])) {
      change(program.nodes, static_cast<std::ptrdiff_t>(i));
      break;
    }
  }
  const std::vector<Finding> findings = Verify({{program}});
  EXPECT_FALSE(findings.empty()) << job.strategy;
  return findings.empty() ? std::string() : findings.front().message;
}

TEST(ReplicatedGradients, ASumThatIsLeftOutIsFound) {
  for (const char* strategy : {"nanotron", "megatron", "fsdp2-defer", "ddp-last"}) {
    EXPECT_THAT(FindingWhere(Scattered(strategy, 2),
                             [](std::vector<Node>& nodes, std::ptrdiff_t at) { nodes.erase(nodes.begin() + at); }),
                HasSubstr("of this tensor-parallel rank's part only"));
    Job heads = Scattered(strategy, 2);
    std::get<Decoder>(heads.network.shape).qk_norm = true;
    heads.layout.sp = false;
    EXPECT_THAT(
        FindingWhere(heads, [](std::vector<Node>& nodes, std::ptrdiff_t at) { nodes.erase(nodes.begin() + at); }),
        HasSubstr("of this tensor-parallel rank's part only"));
  }
}

TEST(ReplicatedGradients, ASumThatIsDoneTwiceIsFound) {
  for (const char* strategy : {"nanotron", "megatron", "fsdp2-defer", "ddp-last"}) {
    // dp = 4, M = 2: 1/8, and the second sum of two equal wholes doubles it.
    EXPECT_THAT(FindingWhere(Scattered(strategy, 2),
                             [](std::vector<Node>& nodes, std::ptrdiff_t at) {
                               nodes.insert(nodes.begin() + at, Node(nodes[static_cast<std::size_t>(at)]));
                             }),
                HasSubstr("with factor 1/4 on behalf of this rank and 1/4 of another, not 1/8"));
  }
}

TEST(ReplicatedGradients, BothEnginesCountThemAlike) {
  for (const char* strategy : {"nanotron", "megatron", "megatron-dist-opt", "fsdp2-defer", "hsdp", "ddp-last"}) {
    for (const StepKind kind : {StepKind::first, StepKind::steady}) {
      Job job = Scattered(strategy, 3);
      std::get<Decoder>(job.network.shape).layers = 12;
      job.axes.shard.replicas = job.strategy == "hsdp" ? 2 : 1;
      const StepProgram step = Sound(job, kind);
      const std::vector<Costs> costs = PriceAll(step, job.machine);
      EXPECT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs)) << strategy;
    }
  }
}

}  // namespace
}  // namespace tidemark::replicated_gradients_test
