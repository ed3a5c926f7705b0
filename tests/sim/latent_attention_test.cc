// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/predict/communication.h"
#include "sim/predict/lints.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::latent_attention_test {
namespace {

// What a step computes for the first time is its forward pass three times: each product, and two of its size backwards.
// A flash kernel's backward pass makes scores again, over a query's size and not a value's, which does not count.
TEST(LatentAttentionFlops, AreThreeForwardPassesInModelFlops) {
  Job job = OracleJob("ddp-last", 4);
  auto& d = std::get<Decoder>(job.network.shape);
  d.kv_heads = d.heads;
  d.head_size = 96;
  d.latent = {.kv_lora_rank = 256, .q_lora_rank = 384, .rope_head_size = 32, .value_head_size = 40};
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double tokens = real(job.micro_batch_size * job.sequence_length), hidden = real(d.hidden),
               heads = real(d.heads);
  const double layer = hidden * (384 + 256 + 32) + 384 * heads * 96 + 256 * heads * (64 + 40) + heads * 40 * hidden +
                       3 * hidden * real(d.ffn);
  const double attention = heads * tokens * real(job.sequence_length) * (96 + 40);  // half the pairs, two flops each
  const double forward = real(d.layers) * (2 * tokens * layer + attention) + 2 * tokens * hidden * real(d.vocabulary);
  const ProgramFlops counted = CountFlops(Sound(job).roles.front());
  EXPECT_DOUBLE_EQ(counted.model, 3 * forward * real(job.accumulation_steps));
  const double scores = real(d.layers) * heads * tokens * real(job.sequence_length) * 96;
  EXPECT_DOUBLE_EQ(counted.hardware - counted.model, scores * real(job.accumulation_steps));
}

// A key that a user gives and that changes nothing is named; the same from a file or a system's defaults is not.
TEST(LatentAttentionLints, NameKeysOfTheCommandLineThatChangeNothing) {
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  using ::testing::IsEmpty;
  const auto named = [](const Job& job, const char* key, const char* source) {
    Job given = job;
    given.sources[key] = source;
    std::vector<std::string> messages;
    for (const Lint& lint : LintJob(given)) {
      if (lint.id == "option-without-effect") {
        messages.push_back(lint.message);
      }
    }
    return messages;
  };
  const Job plain = OracleJob("megatron", 4);
  Job latent = plain;
  auto& d = std::get<Decoder>(latent.network.shape);
  d.kv_heads = d.heads;
  d.latent = {.kv_lora_rank = 8, .rope_head_size = 2, .value_head_size = 4};
  EXPECT_THAT(named(latent, "packing.qkv", "--set"), ElementsAre(HasSubstr("packing.qkv changes nothing")));
  EXPECT_THAT(named(latent, "packing.qkv", "default"), IsEmpty());
  EXPECT_THAT(named(plain, "packing.qkv", "--set"), IsEmpty());
  constexpr const char* kViews = "buffers.latent_value_views";
  EXPECT_THAT(named(plain, kViews, "--set"), ElementsAre(HasSubstr("there is no multi-latent attention")));
  EXPECT_THAT(named(latent, kViews, "--set"), IsEmpty());
  latent.layout.cp = 2;
  EXPECT_THAT(named(latent, kViews, "--set"), ElementsAre(HasSubstr("a ring (layout.cp)")));
}

}  // namespace
}  // namespace tidemark::latent_attention_test
