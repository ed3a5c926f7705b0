// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/program/text.h"
#include "tests/sim/dice.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

namespace tidemark::strategy_megatron_shapes_test {
namespace {

constexpr std::int64_t kEmbedding = 32'768'000, kLayer = 11'274'240;
constexpr const char* kBoth[] = {"megatron", "megatron-dist-opt"};
constexpr StepKind kSteps[] = {StepKind::first, StepKind::second, StepKind::steady};

void ExpectEnginesAgree(const StepProgram& step, const Job& job) {
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  EXPECT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs)) << job.strategy;
}

/// Elements of each reduction with the number of parameters it is over.
struct Bucket {
  std::int64_t elements = 0;
  std::size_t members = 0;
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

std::vector<Bucket> BucketsOf(const Program& program, bool gathers) {
  std::vector<Bucket> buckets;
  for (const Node& node : Unroll(program).nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && (collective->kind == CollectiveKind::all_gather) == gathers) {
      buckets.push_back({collective->payload_elements, collective->reads.size()});
    }
  }
  return buckets;
}

/// The buckets of the oracle's layers by the rule: parameters from the end, a bucket closed when it has reached
/// `limit`. All sizes are multiples of 128, so nothing is padded on 4 ranks.
std::vector<Bucket> BucketsByRule(std::int64_t layers, std::int64_t limit) {
  std::vector<std::int64_t> parameters{kEmbedding, 1'024};
  for (std::int64_t i = 0; i < layers; ++i) {
    for (const std::int64_t n : {2'883'584, 5'767'168, 1'024, 1'048'576, 262'144, 262'144, 1'048'576, 1'024}) {
      parameters.push_back(n);
    }
  }
  parameters.push_back(kEmbedding);
  std::vector<Bucket> buckets{{}};
  for (const std::int64_t n : parameters) {
    if (buckets.back().elements >= limit) {
      buckets.emplace_back();
    }
    buckets.back().elements += n;
    ++buckets.back().members;
  }
  return buckets;
}

TEST(MegatronShapes, ManyLayersFoldAndCountAsIfWrittenOut) {
  for (const char* name : kBoth) {
    for (const std::int64_t limit : {5'000'000, 12'000'000, 40'000'000, 70'000'000}) {
      Job job = OracleJob(name, 3);
      std::get<Decoder>(job.network.shape).layers = 160;
      job.axes.sync.bucket_elements = limit;
      for (const StepKind kind : {StepKind::first, StepKind::steady}) {
        const StepProgram step = Sound(job, kind);
        EXPECT_EQ(BucketsOf(step.roles.front(), false), BucketsByRule(160, limit)) << name << " " << limit;
        if (job.axes.shard.optimizer) {
          EXPECT_EQ(BucketsOf(step.roles.front(), true), BucketsByRule(160, limit)) << limit;
        }
        ExpectEnginesAgree(step, job);
      }
    }
  }
}

/// 80 layers of 70 billion parameters on 8 tensor-parallel ranks.
Job LargeJob(const char* strategy) {
  Job job = OracleJob(strategy, 4);
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 80;
  decoder.hidden = 8192;
  decoder.ffn = 28672;
  decoder.heads = 64;
  decoder.kv_heads = 8;
  decoder.head_size = 128;
  job.layout.tp = 8;
  job.axes.packing = {true, true};
  return job;
}

TEST(MegatronShapes, ProgramsOfManyLayersStaySmall) {
  for (const char* name : kBoth) {
    for (const StepKind kind : kSteps) {
      EXPECT_LT(Print(Sound(LargeJob(name), kind).roles.front()).size(),
                Print(Sound(LargeJob("nanotron"), kind).roles.front()).size())
          << name;
    }
  }
}

TEST(MegatronShapes, FrozenParametersHaveNoPlaceInTheBuffer) {
  for (const char* name : kBoth) {
    Job job = OracleJob(name, 2);
    job.network.trainable = {"head.*"};
    const StepProgram step = Sound(job, StepKind::steady);
    EXPECT_EQ(BucketsOf(step.roles.front(), false), (std::vector<Bucket>{{kEmbedding + 1'024, 2}}));
    const CategoryBytes live = Audit(step, job.machine).at_window_end;
    EXPECT_EQ(live[Category::accumulator].count(), 4 * (kEmbedding + 1'024));
    EXPECT_EQ(live[Category::parameter].count(), 2 * (2 * kEmbedding + 1'024 + 4 * kLayer));
    ExpectEnginesAgree(step, job);
  }
}

TEST(MegatronShapes, AStageThatTrainsNothingReducesNothing) {
  for (const char* name : kBoth) {
    Job job = OracleJob(name, 2);
    job.layout.pp = 2;
    job.network.trainable = {"head.*"};
    for (const StepKind kind : kSteps) {
      const StepProgram step = Sound(job, kind);
      EXPECT_TRUE(BucketsOf(step.roles.front(), false).empty());
      EXPECT_EQ(BucketsOf(step.roles.back(), false), (std::vector<Bucket>{{kEmbedding + 1'024, 2}}));
      ExpectEnginesAgree(step, job);
    }
  }
}

TEST(MegatronShapes, WindowsThatTheDataDoesNotFillAreSound) {
  using Policy = LastWindow::Policy;
  for (const char* name : kBoth) {
    for (const Policy policy : {Policy::carry_over, Policy::drop, Policy::rescaled}) {
      Job job = OracleJob(name, 4);
      job.last_window = {policy, 3};
      for (const StepKind kind : kSteps) {
        ExpectEnginesAgree(Sound(job, kind), job);
      }
    }
  }
}

/// A small random network and layout.
Job RandomJob(Dice& dice) {
  Job job = OracleJob(kBoth[dice.Roll(2)], dice.Number(1, 5));
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  job.layout.pp = dice.OneIn(3) ? dice.Number(2, 3) : 1;
  job.layout.dp = dice.Number(1, 6);
  job.layout.tp = dice.OneIn(3) ? 2 : 1;
  job.layout.sp = job.layout.tp > 1 && dice.OneIn(2);
  decoder.layers = job.layout.pp * dice.Number(1, 9);
  decoder.kv_heads = 2;
  decoder.heads = 2 * dice.Number(1, 2);
  decoder.head_size = 2 * dice.Number(2, 9);
  decoder.hidden = decoder.heads * decoder.head_size;
  decoder.ffn = 2 * dice.Number(8, 40);
  decoder.vocabulary = 2 * dice.Number(20, 400);
  decoder.tied_embeddings = dice.OneIn(2);
  decoder.qkv_bias = dice.OneIn(3);
  decoder.linear_bias = dice.OneIn(3);
  job.sequence_length = 16;
  job.axes.packing = {dice.OneIn(2), dice.OneIn(2)};
  job.axes.sync.overlap = !dice.OneIn(4);
  job.axes.sync.average_in_collective = dice.OneIn(3);
  job.axes.sync.bucket_elements = dice.OneIn(6) ? 0 : dice.Number(1, 20'000);
  if (job.axes.shard.optimizer && dice.OneIn(2)) {
    job.axes.precision.accumulate = job.axes.precision.reduce = DType::bf16;
    job.axes.sync.fp32_accumulation = !job.axes.sync.average_in_collective;
    job.axes.precision.optimizer = dice.OneIn(3) ? DType::bf16 : DType::fp32;
  }
  job.axes.buffers.fused_accumulation = !dice.OneIn(3);
  job.schedule = dice.OneIn(2) ? Schedule::gpipe : Schedule::one_f_one_b;
  return job;
}

/// Elements of each dummy gradient of a rank, and how often a step makes one.
std::pair<std::vector<std::int64_t>, std::int64_t> DummiesOf(const Program& program) {
  std::vector<std::int64_t> elements;
  std::int64_t made = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name.find("dummy gradient") != std::string::npos) {
      elements.push_back(buffer.elements * buffer.count());
    }
  }
  for (const Node& node : Unroll(program).nodes) {
    const auto* alloc = std::get_if<Alloc>(&node);
    const bool is_dummy = alloc != nullptr &&
                          program.buffers[alloc->buffer.buffer.index].name.find("dummy gradient") != std::string::npos;
    made += is_dummy ? 1 : 0;
  }
  std::ranges::sort(elements);
  return {elements, made};
}

// get_dummy_wgrad (transformer_engine/pytorch/module/base.py) keeps its tensors by shape and dtype in one dict of the
// process, which all model chunks of a rank are in.
TEST(MegatronShapes, TheChunksOfARankShareTheirDummyGradients) {
  Job job = OracleJob("megatron", 8);
  std::get<Decoder>(job.network.shape).layers = 8;
  job.layout.dp = 1;
  job.layout.pp = 4;
  for (const StepKind step : kSteps) {
    job.schedule = Schedule::one_f_one_b;
    job.layout.vpp = 1;
    const auto whole = DummiesOf(Sound(job, step).roles[1]);
    // Of keys and values; queries and output; down; gate and up.
    EXPECT_EQ(whole.first, (std::vector<std::int64_t>{262'144, 1'048'576, 2'883'584, 5'767'168}));
    EXPECT_EQ(whole.second, step == StepKind::first ? 4 : 0);
    for (const auto& [schedule, vpp] : {std::pair(Schedule::interleaved, 2), std::pair(Schedule::dualpipe, 1)}) {
      job.schedule = schedule;
      job.layout.vpp = vpp;
      const StepProgram chunked = Sound(job, step);
      EXPECT_EQ(DummiesOf(chunked.roles[1]), whole);
      ExpectEnginesAgree(chunked, job);
    }
  }
}

TEST(MegatronShapes, RandomSettingsAreSoundAndBothEnginesAgree) {
  Dice dice(20);
  for (int i = 0; i < Rounds(400); ++i) {
    const Job job = RandomJob(dice);
    ASSERT_TRUE(Validate(job).ok()) << Validate(job).error().Text();
    const StepProgram step = Sound(job, kSteps[dice.Roll(3)]);
    ExpectEnginesAgree(step, job);
    // Every role reduces each element of its buffer once, padding included.
    for (const Program& program : step.roles) {
      std::int64_t held = 0, reduced = 0;
      for (const Buffer& buffer : program.buffers) {
        held += buffer.category == Category::accumulator && buffer.resident ? buffer.elements * buffer.count() : 0;
      }
      for (const Bucket& bucket : BucketsOf(program, false)) {
        reduced += bucket.elements;
      }
      EXPECT_TRUE(job.layout.tp > 1 || reduced == (job.layout.dp > 1 ? held : 0)) << reduced << " of " << held;
    }
  }
}

}  // namespace
}  // namespace tidemark::strategy_megatron_shapes_test
