// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/dice.h"
#include "tests/sim/oracle_job.h"

// --overlap-param-gather (megatron/core/distributed: _make_forward_pre_hook, finish_param_sync), on the oracle's model:
// 4 data-parallel ranks, two buckets of 69,214,208 elements (the front of the network) and 41,419,776.

namespace tidemark::strategy_megatron_gathers_test {
namespace {

Job GatheringJob(std::int64_t microbatches) {
  Job job = OracleJob("megatron-dist-opt", microbatches);
  job.axes.sync.overlap_gather = true;
  return job;
}

/// Names of leaves in issue order: of kernels and, with their elements, of gathers; "wait" where the compute stream
/// waits for gathered parameters.
std::vector<std::string> Listing(const Program& program) {
  std::vector<std::string> names;
  for (const Node& node : Unroll(program).nodes) {
    if (const auto* compute = std::get_if<Compute>(&node)) {
      names.push_back(program.names[compute->name.index]);
    } else if (const auto* collective = std::get_if<Collective>(&node);
               collective != nullptr && collective->kind == CollectiveKind::all_gather) {
      names.push_back("gather " + std::to_string(collective->payload_elements));
    } else if (const auto* wait = std::get_if<Wait>(&node);
               wait != nullptr && program.events[wait->event.index].ends_with("gathered")) {
      names.push_back("wait");
    }
  }
  return names;
}

std::vector<std::string> GathersOf(const Program& program) {
  std::vector<std::string> gathers;
  std::ranges::copy_if(Listing(program), std::back_inserter(gathers),
                       [](const std::string& name) { return name.starts_with("gather"); });
  return gathers;
}

/// Layers whose forward pass stands in the text.
std::int64_t LayersWritten(const Program& program) {
  return std::ranges::count_if(program.nodes, [&](const Node& node) {
    const auto* compute = std::get_if<Compute>(&node);
    return compute != nullptr && program.names[compute->name.index] == "layer.down.forward";
  });
}

void ExpectEnginesAgree(const StepProgram& step, const Job& job) {
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  EXPECT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs));
}

TEST(MegatronGathers, WhoNeedsABucketFirstWaitsForItAndLetsTheNextOneGo) {
  const std::vector<std::string> names = Listing(Sound(GatheringJob(2)).roles.front());
  const auto embedding = std::ranges::find(names, "embedding.embedding.forward");
  ASSERT_GE(embedding - names.begin(), 3);
  EXPECT_EQ(std::vector<std::string>(embedding - 3, embedding),
            (std::vector<std::string>{"gather 69214208", "wait", "gather 41419776"}));
  // The other one has head and final norm, 32,769,024, down of the last layer, 2,883,584, and its gate_up, 5,767,168.
  const auto second = std::find(embedding, names.end(), "wait");
  ASSERT_NE(second, names.end());
  EXPECT_EQ(*(second + 1), "layer.gate_up.forward");
  EXPECT_EQ(std::count(names.begin(), second, "layer.gate_up.forward"), 3);
  EXPECT_EQ(std::ranges::count(names, "wait"), 2);
}

TEST(MegatronGathers, ATrainingBeginsWithWeightsThatAreWhole) {
  EXPECT_EQ(GathersOf(Sound(GatheringJob(2), StepKind::first).roles.front()).size(), 0U);
  for (const StepKind kind : {StepKind::second, StepKind::steady}) {
    const StepProgram step = Sound(GatheringJob(2), kind);
    EXPECT_EQ(GathersOf(step.roles.front()), (std::vector<std::string>{"gather 69214208", "gather 41419776"}));
    EXPECT_FALSE(Listing(step.roles.front()).back().starts_with("gather"));
  }
}

TEST(MegatronGathers, CostTimeThatForwardPassesHideAndNoMemory) {
  Job job = GatheringJob(2);
  const auto evaluate = [&] {
    const StepProgram step = Sound(job);
    Bytes sent;
    for (const CommunicationRow& row : CountCommunication(step.roles.front())) {
      sent += row.wire;
    }
    return std::pair(EvaluateClosedForm(step, PriceAll(step, job.machine)), sent);
  };
  const auto [hidden, sent] = evaluate();
  job.axes.sync.overlap_gather = false;
  const auto [behind, sent_behind] = evaluate();
  EXPECT_EQ(sent, sent_behind);
  EXPECT_EQ(hidden.roles.front(), behind.roles.front());
  // The second bucket, of two bytes an element over 3/4 of the ranks at 4e11 bytes/s at most, is all that can be
  // hidden.
  const double second_ns = 41'419'776 * 2 * 0.75 / 4e11 * 1e9;
  EXPECT_LT(hidden.time.step, behind.time.step);
  EXPECT_GT(hidden.time.step.count(), behind.time.step.count() - static_cast<std::int64_t>(1.2 * second_ns));
}

TEST(MegatronGathers, ManyLayersFold) {
  for (const std::int64_t limit : {5'000'000, 12'000'000, 40'000'000}) {
    Job job = GatheringJob(3);
    std::get<Decoder>(job.network.shape).layers = 160;
    job.axes.sync.bucket_elements = limit;
    const StepProgram step = Sound(job);
    std::vector<std::string> reduced;
    for (const Node& node : Unroll(step.roles.front()).nodes) {
      const auto* collective = std::get_if<Collective>(&node);
      if (collective != nullptr && collective->kind == CollectiveKind::reduce_scatter) {
        reduced.push_back("gather " + std::to_string(collective->payload_elements));
      }
    }
    std::ranges::reverse(reduced);
    EXPECT_EQ(GathersOf(step.roles.front()), reduced) << limit;
    ExpectEnginesAgree(step, job);
    // Of one forward pass a loop's body is a period of buckets, of up to five layers here (11,274,240 elements each),
    // and as many may be left behind it; without gathers one layer is the body and one is left.
    job.axes.sync.overlap_gather = false;
    EXPECT_LE(LayersWritten(step.roles.front()), LayersWritten(Sound(job).roles.front()) + 2 * 5 - 2) << limit;
  }
}

TEST(MegatronGathers, ChunksOfARankLeaveTogether) {
  Job job = GatheringJob(4);
  std::get<Decoder>(job.network.shape).layers = 6;
  job.layout.pp = 2;
  job.layout.vpp = 3;
  job.schedule = Schedule::interleaved;
  job.axes.sync.bucket_elements = 10'000'000;
  const StepProgram step = Sound(job);
  // One layer a chunk, 11,274,240 elements; the first also has the embedding, 32,768,000, and is cut where down and
  // gate_up, norm2, wo, wv and wk make 10,224,640.
  const std::vector<std::string> names = Listing(step.roles.front());
  const auto begins = [&](const char* kernel) { return std::ranges::find(names, kernel); };
  const auto gathers_before = [&](auto end) {
    return std::count_if(names.begin(), end, [](const std::string& name) { return name.starts_with("gather"); });
  };
  EXPECT_EQ(GathersOf(step.roles.front()),
            (std::vector<std::string>{"gather 33817600", "gather 10224640", "gather 11274240", "gather 11274240"}));
  EXPECT_EQ(gathers_before(begins("stage 0 embedding.embedding.forward")), 3);  // the first two chunks'
  EXPECT_EQ(gathers_before(begins("stage 2 layer.norm1.forward")), 4);
  ExpectEnginesAgree(step, job);
}

// Its products are all in the backward pass. Here the head is a bucket of its own.
TEST(MegatronGathers, TheHeadOfALossInChunksWaitsWhenItIsCalled) {
  Job job = GatheringJob(2);
  job.axes.loss = Partition::Loss::chunked;
  job.axes.sync.bucket_elements = 20'000'000;
  const StepProgram step = Sound(job);
  const std::vector<std::string> names = Listing(step.roles.front());
  const auto backward =
      std::ranges::find_if(names, [](const std::string& name) { return name.ends_with(".backward"); });
  EXPECT_EQ(std::count(names.begin(), backward, "wait"), std::ssize(GathersOf(step.roles.front())));
}

TEST(MegatronGathers, OnlyTheDistributedOptimizerWithOverlapHasThem) {
  const auto refusal = [](const Job& job) {
    const Status status = FindStrategy(job.strategy)->Accept(job);
    return status.ok() ? std::string() : status.error().message;
  };
  Job job = GatheringJob(2);
  EXPECT_EQ(refusal(job), "");
  job.axes.sync.overlap = false;
  EXPECT_EQ(refusal(job), "Must use --overlap-param-gather with --overlap-grad-reduce");
  Job plain = OracleJob("megatron", 2);
  plain.axes.sync.overlap_gather = true;
  EXPECT_NE(refusal(plain).find("only supported with distributed optimizer"), std::string::npos);
}

TEST(MegatronGathers, RandomSettingsAreSoundAndBothEnginesAgree) {
  Dice dice(31);
  for (int i = 0; i < Rounds(150); ++i) {
    Job job = GatheringJob(dice.Number(1, 3));
    Decoder& decoder = std::get<Decoder>(job.network.shape);
    job.layout.pp = dice.OneIn(2) ? dice.Number(2, 3) : 1;
    job.layout.vpp = job.layout.pp > 1 && dice.OneIn(2) ? dice.Number(2, 3) : 1;
    job.schedule = job.layout.vpp > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
    job.accumulation_steps *= job.layout.pp;
    job.layout.dp = dice.Number(1, 5);
    job.layout.tp = dice.OneIn(3) ? 2 : 1;
    job.layout.sp = job.layout.tp > 1 && dice.OneIn(2);
    decoder.layers = job.layout.pp * job.layout.vpp * dice.Number(1, 6);
    decoder.kv_heads = 2;
    decoder.heads = 2;
    decoder.head_size = 2 * dice.Number(2, 9);
    decoder.hidden = decoder.heads * decoder.head_size;
    decoder.ffn = 2 * dice.Number(8, 40);
    decoder.vocabulary = 2 * dice.Number(20, 400);
    decoder.tied_embeddings = dice.OneIn(2);
    decoder.positions = dice.OneIn(3) ? 16 : 0;
    decoder.linear_bias = dice.OneIn(3);
    job.sequence_length = 16;
    job.axes.buffers.attention_mask = dice.OneIn(2);
    job.axes.sync.bucket_elements = dice.OneIn(6) ? 0 : dice.Number(1, 20'000);
    if (job.layout.tp == 1 && dice.OneIn(3)) {
      job.axes.loss = dice.OneIn(2) ? Partition::Loss::chunked : Partition::Loss::fused;
      job.axes.loss_chunk_tokens = 8;
    }
    if (dice.OneIn(4)) {
      job.axes.recompute.policy = dice.OneIn(2) ? Recompute::Policy::full : Recompute::Policy::selective;
    }
    ASSERT_TRUE(Validate(job).ok()) << Validate(job).error().Text();
    const StepProgram step = Sound(job);
    ExpectEnginesAgree(step, job);
    // Every bucket that is reduced was gathered.
    for (const Program& program : step.roles) {
      std::int64_t gathered = 0, reduced = 0;
      for (const Node& node : Unroll(program).nodes) {
        const auto* collective = std::get_if<Collective>(&node);
        if (collective != nullptr && program.groups[collective->group.index].name == "dp") {
          (collective->kind == CollectiveKind::all_gather ? gathered : reduced) += collective->payload_elements;
        }
      }
      EXPECT_EQ(gathered, reduced);
    }
  }
}

}  // namespace
}  // namespace tidemark::strategy_megatron_gathers_test
