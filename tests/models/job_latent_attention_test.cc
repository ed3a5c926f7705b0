// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>

#include "tests/models/job_fixture.h"

// The keys of network.latent_attention in a job.

namespace tidemark::job_latent_attention_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Inline(const std::string& more) {
  return "network:\n"
         "  {layers: 2, hidden: 64, ffn: 96, heads: 4, vocabulary: 128, " +
         more +
         "}\n"
         "machine: h100-sxm-80gb\nstrategy: plain\nsequence_length: 32\nmicro_batch_size: 2\n";
}
const std::string kLatent = "latent_attention: {kv_lora_rank: 16, rope_head_size: 8, value_head_size: 12}";

TEST(JobLatentAttention, HasAsManyKeysAsQueriesWhereNothingIsSaidOfThem) {
  const Result<Job> job = Parse(Inline("head_size: 24, " + kLatent));
  ASSERT_TRUE(job.ok()) << job.error().Text();
  EXPECT_EQ(std::get<Decoder>(job->network.shape).kv_heads, 4);
  const std::string zoo =
      "network: deepseek-v3\nmachine: h100-sxm-80gb\nstrategy: plain\nsequence_length: 32\n"
      "micro_batch_size: 1\n";
  const Result<Job> fewer = Parse(zoo, {"network.heads=64"});
  ASSERT_TRUE(fewer.ok()) << fewer.error().Text();
  EXPECT_EQ(std::get<Decoder>(fewer->network.shape).kv_heads, 64);
}

TEST(JobLatentAttention, NeedsItsHeadSize) {
  const std::string error = Refusal(Inline(kLatent));
  EXPECT_THAT(error, HasSubstr("lacks 'head_size'"));
  EXPECT_THAT(error, HasSubstr("qk_nope_head_dim + qk_rope_head_dim"));
}

TEST(JobLatentAttention, IsPrintedWhereThereIsSomeAndReadBack) {
  const Result<Job> job = Parse(Inline("head_size: 24, " + kLatent));
  ASSERT_TRUE(job.ok()) << job.error().Text();
  const Result<Job> again = Parse(JobYaml(*job));
  ASSERT_TRUE(again.ok()) << again.error().Text();
  EXPECT_EQ(again->network, job->network);
  EXPECT_THAT(JobYaml(*Parse(SmallJob())), Not(HasSubstr("latent_attention")));
}

TEST(JobLatentAttention, IsNoEncoders) {
  EXPECT_THAT(Refusal("network: {dual_encoder: {first: {layers: 2, hidden: 64, ffn: 96, heads: 4, vocabulary: 128, "
                      "latent_attention: {kv_lora_rank: 16}}}}\n"
                      "machine: h100-sxm-80gb\nstrategy: plain\nsequence_length: 32\nmicro_batch_size: 2\n"),
              HasSubstr("network.dual_encoder.first.latent_attention"));
}

}  // namespace
}  // namespace tidemark::job_latent_attention_test
