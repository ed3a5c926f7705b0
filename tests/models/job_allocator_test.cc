// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/models/job_fixture.h"

namespace tidemark::job_allocator_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kMiB = 1 << 20;

Bytes MiB(std::int64_t count) { return Bytes(count * kMiB); }

std::vector<RoundupDivisions> Divisions(const std::string& text) {
  return MustParse(SmallJob("allocator: {roundup_power2_divisions: " + text + "}\n"))
      .allocator.roundup_power2_divisions;
}

TEST(JobAllocator, HasTheKnobsOfPyTorchWithSizesInUnits) {
  const AllocatorOptions options =
      MustParse(SmallJob("allocator: {kind: torch-caching, max_split_size: 256 MiB, max_non_split_rounding: 30 MiB, "
                         "large_segment_size: 40 MiB, garbage_collection_threshold: 0.8, memory_fraction: 0.95}\n"))
          .allocator;
  EXPECT_EQ(options.max_split, MiB(256));
  EXPECT_EQ(options.max_non_split_rounding, MiB(30));
  EXPECT_EQ(options.large_segment, MiB(40));
  EXPECT_EQ(options.garbage_collection_threshold, 0.8);
  EXPECT_EQ(options.memory_fraction, 0.95);
  EXPECT_EQ(
      MustParse(SmallJob("allocator: {kind: cuda-async, release_threshold: 1 GiB}\n")).allocator.release_threshold,
      Bytes(std::int64_t{1} << 30));
  EXPECT_EQ(MustParse(SmallJob("allocator: {kind: arena, memory_fraction: 0.75}\n")).allocator.kind,
            AllocatorKind::arena);
}

TEST(JobAllocator, NullIsEachKnobsDefault) {
  const Job job =
      MustParse(SmallJob("allocator: {max_split_size: null, roundup_power2_divisions: null, "
                         "garbage_collection_threshold: null, memory_fraction: null}\n"));
  EXPECT_EQ(job.allocator, AllocatorOptions());
  EXPECT_THAT(JobYaml(job), AllOf(HasSubstr("max_split_size: null"), HasSubstr("roundup_power2_divisions: null")));
}

// The expected values are those of PyTorch's own test (c10/test/core, AllocatorConfigTest): [128:8,256:16,512:1,2048:8,
// >:2] gives 8 for 64 and 128 MiB, 16 for 256, 1 for 512, 0 for 1024, 8 for 2048, 2 for 4096.
TEST(JobAllocator, ReadsTheListOfRoundupDivisionsAsPyTorchDoes) {
  const std::vector<RoundupDivisions> expected = {{Bytes(0), 8},  {MiB(256), 16}, {MiB(512), 1},
                                                  {MiB(1024), 0}, {MiB(2048), 8}, {MiB(4096), 2}};
  EXPECT_EQ(Divisions("\"[128:8,256:16,512:1,2048:8,>:2]\""), expected);
  EXPECT_EQ(Divisions("\"128:8, 256:16, 512:1, 2048:8, >:2\""), expected);
  EXPECT_EQ(Divisions("[\"128:8\", \"256:16\", \"512:1\", \"2048:8\", \">:2\"]"), expected);
}

// The same test: [64:8,128:2,256:4,512:2,1024:4,>:1] gives 8, 2, 4, 2, 4 and from 2048 on 1.
TEST(JobAllocator, CountsTheFirstIntervalForAllBelowAndTheLastForAllAbove) {
  const std::vector<RoundupDivisions> expected = {{Bytes(0), 8}, {MiB(128), 2},  {MiB(256), 4},
                                                  {MiB(512), 2}, {MiB(1024), 4}, {MiB(2048), 1}};
  EXPECT_EQ(Divisions("\"64:8,128:2,256:4,512:2,1024:4,>:1\""), expected);
}

TEST(JobAllocator, TakesOneNumberOfDivisionsForAllSizes) {
  EXPECT_EQ(Divisions("4"), (std::vector<RoundupDivisions>{{Bytes(0), 4}}));
  EXPECT_EQ(Divisions("\"64:0,>:0\""), std::vector<RoundupDivisions>()) << "none is none";
}

TEST(JobAllocator, SaysWhatRoundupDivisionsLookLike) {
  for (const char* wrong :
       {"3", "-4", "eight", "\"100:4\"", "\"128:3\"", "\"128:\"", "\">:2\"", "\"\"", "{a: 1}", "[]"}) {
    EXPECT_THAT(Refusal(SmallJob(std::string("allocator: {roundup_power2_divisions: ") + wrong + "}\n")),
                HasSubstr("roundup_power2_divisions"))
        << wrong;
  }
  EXPECT_THAT(Refusal(SmallJob("allocator: {roundup_power2_divisions: 3}\n")),
              StartsWith("runs/job.yaml:12: allocator.roundup_power2_divisions: expected a power of two, or MiB with "
                         "their powers of two, found '3'"));
}

TEST(JobAllocator, RefusesAKnobThatItsKindDoesNotHave) {
  EXPECT_THAT(Refusal(SmallJob("allocator: {kind: exact, max_split_size: 100 MiB}\n")),
              StartsWith("runs/job.yaml:12: allocator.max_split_size: the allocator of this job has no such knob"));
  for (const char* set : {"expandable_segments=true", "large_segment_size=40 MiB", "roundup_power2_divisions=4",
                          "garbage_collection_threshold=0.5", "max_non_split_rounding=21 MiB"}) {
    EXPECT_THAT(Refusal(SmallJob("allocator: {kind: arena}\n"), {std::string("allocator.") + set}),
                HasSubstr("has no such knob"))
        << set;
  }
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.release_threshold=1 GiB"}), HasSubstr("has no such knob"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.kind=cuda-async", "allocator.memory_fraction=0.5"}),
              HasSubstr("has no such knob"));
}

TEST(JobAllocator, RefusesWhatPyTorchRefusesOrCannotDo) {
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.max_split_size=19 MiB"}), HasSubstr("at least 20.0 MiB"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.max_non_split_rounding=19 MiB"}), HasSubstr("at least 20.0 MiB"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.max_split_size=30 MiB", "allocator.large_segment_size=40 MiB"}),
              HasSubstr("30.0 MiB is less than a large segment, of 40.0 MiB"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.max_split_size=30 MiB", "allocator.expandable_segments=true"}),
              HasSubstr("has no blocks that are kept whole"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.garbage_collection_threshold=0.8"}),
              HasSubstr("only where the process has a memory fraction"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.garbage_collection_threshold=1"}), HasSubstr("from 0.01 to 0.99"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.memory_fraction=1.5"}), HasSubstr("from 0.01 to 1"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.large_segment_size=9 MiB"}), HasSubstr("at least 10.0 MiB"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.large_segment_size=21000000"}), HasSubstr("whole MiB"));
  EXPECT_THAT(Refusal(SmallJob(), {"allocator.large_segment_size=21 MiB", "allocator.expandable_segments=true"}),
              HasSubstr("pages of 2 MiB"));
}

}  // namespace
}  // namespace tidemark::job_allocator_test
