// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "profiler/execute/messages.h"
#include "sim/program/stages.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::pipeline_test {
namespace {

Job Pipeline(Schedule schedule, std::int64_t stages) {
  Job job = SmallJob("nanotron");
  job.layout.pp = stages;
  job.schedule = schedule;
  job.accumulation_steps = 8;
  std::get<Decoder>(job.network.shape).layers = 4;
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  return job;
}

TEST(Stages, AreToldByNames) {
  EXPECT_EQ(StageIn("stage 12 layer.wq"), 12);
  EXPECT_EQ(StageIn("mirrored stage 2 gradient of layer.wq"), 2);
  for (const char* none : {"layer.wq", "stage 2", "stage x layer", "upstage 2 layer", ""}) {
    EXPECT_EQ(StageIn(none), std::nullopt) << none;
  }
  EXPECT_EQ(WithoutStage("stage 2 moments of layer"), "moments of layer");
  EXPECT_EQ(WithoutStage("moments of layer"), "moments of layer");
}

// Of two stages over four layers the second begins with the model's layer 2; both have a copy of the embedding.
TEST(Stages, HaveTheNumbersOfTheWholeModel) {
  const Job job = Pipeline(Schedule::one_f_one_b, 2);
  Job whole_job = job;
  whole_job.layout.pp = 1;
  const Model whole = *Model::Of(whole_job, {0, 1}), second = *Model::Of(job, {0, 1}, 0, {1});
  const auto values = [](const Model& model, const char* name, std::int64_t block) {
    const Model::Weight weight = *model.WeightOf(name);
    std::vector<double> drawn(static_cast<std::size_t>(weight.parameter->elements));
    model.Initialise(weight, block, 7, 0, {{DType::fp64, std::ssize(drawn)}, drawn.data()},
                     {.kind = kernels::Queue::Kind::cpu});
    return drawn;
  };
  EXPECT_EQ(second.FirstOf("layer.wq.forward"), 2);
  EXPECT_EQ(values(second, "weight of layer.wq", 3), values(whole, "weight of layer.wq", 3));
  EXPECT_EQ(values(second, "weight of head.lm_head", 0), values(whole, "weight of embedding.embedding", 0));
  EXPECT_TRUE(second.Held("layer.wq", 2));
  EXPECT_FALSE(second.Held("layer.wq", 1));
  EXPECT_TRUE(second.Held("embedding.embedding", 0)->is_copy);
}

TEST(Stages, OfAMirroredPipelineAreTwoOnEachRank) {
  const auto step = Lower(Pipeline(Schedule::dualpipe, 2), StepKind::first);
  ASSERT_TRUE(step.ok()) << step.error().Text();
  std::vector<std::int64_t> stages = StagesOf(step->roles[1]);
  std::sort(stages.begin(), stages.end());
  EXPECT_EQ(stages, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(StagesOf(Lower(Pipeline(Schedule::gpipe, 2), StepKind::first)->roles[1]), std::vector<std::int64_t>{1});
}

// Both ends number their channels by themselves, and messages of two channels must not be mixed up.
TEST(Channels, HaveOneTagAtBothEnds) {
  const StepProgram step = *Lower(Pipeline(Schedule::dualpipe, 4), StepKind::first);
  std::size_t compared = 0;
  for (const Program& role : step.roles) {
    for (std::uint32_t i = 0; i < role.channels.size(); ++i) {
      const Channel& channel = role.channels[i];
      for (std::uint32_t j = 0; j < role.channels.size(); ++j) {
        const bool same_ends =
            channel.from_role == role.channels[j].from_role && channel.to_role == role.channels[j].to_role;
        EXPECT_EQ(i == j, same_ends && TagOf(role, ChannelId{i}) == TagOf(role, ChannelId{j}));
      }
      const Program& other = step.roles[static_cast<std::size_t>(
          channel.from_role == role.role_index ? channel.to_role : channel.from_role)];
      const auto there = std::find_if(other.channels.begin(), other.channels.end(),
                                      [&](const Channel& one) { return one.name == channel.name; });
      ASSERT_NE(there, other.channels.end()) << channel.name;
      EXPECT_EQ(TagOf(role, ChannelId{i}),
                TagOf(other, ChannelId{static_cast<std::uint32_t>(there - other.channels.begin())}));
      ++compared;
    }
  }
  EXPECT_GT(compared, 12U);
}

/// What a check of a role's types says; empty: nothing.
std::string Refusal(const Job& job, const Program& role) {
  const auto types = DeclareTypes(job, *Model::Of(job, {0, 1}, 0, StagesOf(role)), role, false);
  return types.ok() ? std::string() : types.error().Text();
}

// Micro-batches of 2 x 16 tokens, 64 wide: 2,048 numbers. A receiver that made room for what its program says would
// believe any other size.
TEST(Messages, HaveTheSizeOfTheNetworkAndNotOfTheProgram) {
  const Job job = Pipeline(Schedule::one_f_one_b, 2);
  StepProgram step = *Lower(job, StepKind::first);
  for (Program& role : step.roles) {
    EXPECT_EQ(Refusal(job, role), "");
    const auto residual = std::find_if(role.buffers.begin(), role.buffers.end(),
                                       [](const Buffer& buffer) { return buffer.name == "residual"; });
    ASSERT_EQ(residual->elements, 2048);
    residual->elements = 1024;
    EXPECT_NE(Refusal(job, role).find("2048 x bf16, for which the program has a buffer of 1024 x bf16"),
              std::string::npos);
  }
}

// One mutation for each of the two leaves: a rank that sends or receives something else.
TEST(Messages, OfAnotherTensorAreRefused) {
  const Job job = Pipeline(Schedule::one_f_one_b, 2);
  StepProgram step = *Lower(job, StepKind::first);
  const auto mutate = [&](Program& role, const char* name, auto* leaf_of) {
    const auto other = std::find_if(role.buffers.begin(), role.buffers.end(),
                                    [&](const Buffer& buffer) { return buffer.name == name; });
    for (Node& node : role.nodes) {
      if (auto* leaf = std::get_if<std::remove_pointer_t<decltype(leaf_of)>>(&node)) {
        leaf->buffer.buffer = BufferId{static_cast<std::uint32_t>(other - role.buffers.begin())};
        leaf->buffer.index[1] = {};  // of the first layer
        return;
      }
    }
  };
  mutate(step.roles[0], "layer.gate_up", static_cast<Send*>(nullptr));
  EXPECT_THAT(Refusal(job, step.roles[0]), testing::HasSubstr("'send activation' sends 6144 x bf16"));
  mutate(step.roles[1], "layer.gate_up", static_cast<Recv*>(nullptr));
  EXPECT_THAT(Refusal(job, step.roles[1]), testing::HasSubstr("'receive activation' makes 'layer.gate_up'"));
}

}  // namespace
}  // namespace tidemark::pipeline_test
