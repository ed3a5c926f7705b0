// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

// Megatron-LM's data loader makes a mask of sequence x sequence bytes a sample (pretrain_gpt.py, get_batch): 2 *
// 2,048^2 bytes in the oracle's job.

namespace tidemark::attention_mask_test {
namespace {

constexpr std::int64_t kMask = 2 * 2048 * 2048;

Job MaskedJob(Recompute::Policy policy = Recompute::Policy::none) {
  Job job = OracleJob("megatron", 3);
  job.axes.buffers.attention_mask = true;
  job.axes.recompute.policy = policy;
  return job;
}

/// The phases in which masks are allocated and freed, and of which block the last kernel before each free was.
std::vector<std::string> LivesOf(const Program& program) {
  std::vector<std::string> lives;
  std::string phase, block;
  for (const Node& node : Unroll(program).nodes) {
    const auto is_mask = [&](const BufferRef& ref) {
      return program.buffers[ref.buffer.index].name.ends_with("attention_mask");
    };
    if (const auto* begin = std::get_if<Begin>(&node)) {
      phase = Name(begin->phase);
    } else if (const auto* compute = std::get_if<Compute>(&node)) {
      const std::string& name = program.names[compute->name.index];
      block = name.substr(0, name.find('.'));
    } else if (const auto* alloc = std::get_if<Alloc>(&node); alloc != nullptr && is_mask(alloc->buffer)) {
      EXPECT_EQ(program.buffers[alloc->buffer.buffer.index].bytes().count(), kMask);
      lives.push_back(phase);
    } else if (const auto* free = std::get_if<Free>(&node); free != nullptr && is_mask(free->buffer)) {
      lives.push_back(phase + " behind " + block);
    }
  }
  return lives;
}

std::vector<std::string> Times(std::size_t count, const std::string& from, const std::string& to) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.insert(all.end(), {from, to});
  }
  return all;
}

TEST(AttentionMask, LivesUntilTheLossIsThere) {
  EXPECT_EQ(LivesOf(Sound(MaskedJob()).roles.front()), Times(3, "load", "forward behind head"));
  Job job = MaskedJob();
  job.axes.buffers.attention_mask = false;
  EXPECT_TRUE(LivesOf(Sound(job).roles.front()).empty());
}

TEST(AttentionMask, LayersThatAreComputedAgainKeepItUntilThen) {
  // The embedding's is behind the layers' backward passes.
  const std::vector<std::string> kept = Times(3, "load", "backward behind layer");
  EXPECT_EQ(LivesOf(Sound(MaskedJob(Recompute::Policy::full)).roles.front()), kept);
  Job job = MaskedJob(Recompute::Policy::selective);
  EXPECT_EQ(LivesOf(Sound(job).roles.front()), kept);
  job.axes.recompute.attention = false;
  job.axes.recompute.norm = true;
  EXPECT_EQ(LivesOf(Sound(job).roles.front()), Times(3, "load", "forward behind head"));
}

TEST(AttentionMask, StagesInTheMiddleHaveNone) {
  Job job = MaskedJob(Recompute::Policy::full);
  job.layout.pp = 4;
  const StepProgram step = Sound(job);
  ASSERT_EQ(step.roles.size(), 4U);
  for (const std::size_t stage : {0, 1, 2, 3}) {
    EXPECT_EQ(LivesOf(step.roles[stage]).size(), stage == 1 || stage == 2 ? 0U : 6U) << stage;
  }
  // The first stage has three microbatches under way in front of the first backward pass, each with its mask.
  const std::vector<std::string> first = LivesOf(step.roles[0]);
  EXPECT_EQ(std::vector<std::string>(first.begin(), first.begin() + 3), std::vector<std::string>(3, "load"));
}

TEST(AttentionMask, CountsAtThePeak) {
  Job job = MaskedJob();
  const auto peak = [&] {
    const StepProgram step = Sound(job);
    return EvaluateClosedForm(step, PriceAll(step, job.machine)).roles.front().allocated.count();
  };
  const std::int64_t with = peak();
  job.axes.buffers.attention_mask = false;
  EXPECT_EQ(with - peak(), kMask);  // of this job it is in the loss
}

// Sizes add up to 2^62 bytes at most: 2^22 masks of 2^40 bytes are that by themselves, where all else is small.
TEST(AttentionMask, CountsAmongTheSizesThatAreBounded) {
  Job job = MaskedJob();
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 1;
  decoder.heads = decoder.kv_heads = decoder.head_size = 2;
  decoder.hidden = 4;
  decoder.ffn = 4;
  decoder.vocabulary = 8;
  job.layout.dp = 1;
  job.sequence_length = 1 << 20;
  job.micro_batch_size = 1;
  job.accumulation_steps = 1 << 22;
  const Status with = Validate(job);
  ASSERT_FALSE(with.ok());
  EXPECT_NE(with.error().message.find("more than 2^62 bytes"), std::string::npos) << with.error().message;
  job.axes.buffers.attention_mask = false;
  EXPECT_TRUE(Validate(job).ok()) << Validate(job).error().Text();
}

}  // namespace
}  // namespace tidemark::attention_mask_test
