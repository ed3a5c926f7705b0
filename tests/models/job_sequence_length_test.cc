// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/models/job_fixture.h"

namespace tidemark::job_sequence_length_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::pair<std::int64_t, std::int64_t> LengthsOf(const Job& job) {
  return {job.sequence_length, job.mean_sequence_length};
}

using Lengths = std::pair<std::int64_t, std::int64_t>;

/// SmallJob says `sequence_length: 2048`.
Job With(const std::vector<std::string>& set) { return MustParse(SmallJob(), set); }

TEST(SequenceLength, IsANumberOrTheLongestAndTheMean) {
  EXPECT_EQ(LengthsOf(With({})), Lengths(2048, 0));
  EXPECT_EQ(LengthsOf(With({"sequence_length.mean=700"})), Lengths(2048, 700));
  EXPECT_EQ(LengthsOf(With({"sequence_length.max=4096", "sequence_length.mean=700"})), Lengths(4096, 700));
  EXPECT_EQ(LengthsOf(With({"sequence_length={max: 512, mean: 100}"})), Lengths(512, 100));
}

TEST(SequenceLength, IsWhatWasSaidLast) {
  EXPECT_EQ(LengthsOf(With({"sequence_length={max: 512, mean: 100}", "sequence_length=300"})), Lengths(300, 0));
  EXPECT_EQ(LengthsOf(With({"sequence_length.mean=100", "sequence_length=300"})), Lengths(300, 0));
  EXPECT_EQ(LengthsOf(With({"sequence_length.max=512"})), Lengths(512, 0));
  EXPECT_EQ(LengthsOf(With({"sequence_length=300", "sequence_length.mean=100"})), Lengths(300, 100));
}

TEST(SequenceLength, ReadsBackAsItWasWritten) {
  for (const std::vector<std::string>& set : std::vector<std::vector<std::string>>{
           {}, {"sequence_length.mean=700"}, {"sequence_length.max=512"}, {"sequence_length={max: 512, mean: 512}"}}) {
    const Job job = With(set);
    const std::string yaml = JobYaml(job);
    EXPECT_EQ(LengthsOf(MustParse(yaml)), LengthsOf(job)) << yaml;
    Job bare = job;
    bare.sources.clear();
    EXPECT_EQ(LengthsOf(MustParse(JobYaml(bare))), LengthsOf(job));
  }
  EXPECT_THAT(JobYaml(With({})), Not(HasSubstr("mean")));
  EXPECT_THAT(JobYaml(With({"sequence_length.mean=700"})),
              HasSubstr("sequence_length:\n  max: 2048  # from job.yaml:10\n  mean: 700  # --set\n"));
}

TEST(SequenceLength, MustHaveALongestThatIsNotShorterThanTheMean) {
  EXPECT_THAT(Refusal(SmallJob(), {"sequence_length.mean=4096"}),
              HasSubstr("--set sequence_length.mean=4096: sequence_length.mean: sequences of 4096 tokens on average"));
  EXPECT_THAT(Refusal(SmallJob(), {"sequence_length.mean=0"}), HasSubstr("expected a whole number from 1"));
  EXPECT_THAT(Refusal("network: llama-3-8b\nmachine: cpu\nstrategy: plain\nsequence_length: {mean: 5}\n"),
              HasSubstr("no sequence_length"));
}

TEST(SequenceLength, DividesIntoTwoStretchesForEachContextParallelRank) {
  EXPECT_EQ(With({"layout.cp=4"}).layout.cp, 4);
  EXPECT_THAT(Refusal(SmallJob(), {"layout.cp=4", "sequence_length=2044"}),
              HasSubstr("sequence_length: 2044 tokens do not divide over 4 context-parallel ranks"));
  EXPECT_THAT(Refusal(SmallJob(), {"layout.cp=4", "sequence_length.mean=700"}), HasSubstr("sequence_length.mean"));
  // 8 tokens for two stretches on each of 4 ranks, whose 2 rows are too few for 8 sequence-parallel ranks.
  EXPECT_THAT(Refusal(SmallJob(), {"layout.cp=4", "layout.tp=8", "layout.sp=true", "sequence_length=2040"}),
              HasSubstr("expected a multiple of 32"));
  EXPECT_EQ(With({"layout.cp=4", "layout.tp=2", "layout.sp=true", "sequence_length=24"}).sequence_length, 24);
  EXPECT_THAT(Refusal(SmallJob(), {"layout.cp=4", "layout.tp=2", "layout.sp=true", "sequence_length=20"}),
              HasSubstr("expected a multiple of 8"));
  EXPECT_THAT(Refusal(SmallJob(), {"layout.cp=4", "sequence_length=64", "sequence_length.mean=8", "loss=chunked"}),
              HasSubstr("more than a mean one has tokens on a rank"));
}

}  // namespace
}  // namespace tidemark::job_sequence_length_test
