// SPDX-License-Identifier: Apache-2.0
#include "models/job/read_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidemark::read_allocator_test {
namespace {

using testing::HasSubstr;

Result<AllocatorOptions> Read(const std::vector<std::string>& settings, const AllocatorOptions& base = {}) {
  return ReadAllocator(base, settings);
}

TEST(ReadAllocator, TakesKeysWithAndWithoutTheirSection) {
  const auto options = Read({"allocator.kind=torch-caching", "max_split_size=128 MiB", "roundup_power2_divisions=4"});
  ASSERT_TRUE(options) << options.error().Text();
  EXPECT_EQ(options->max_split, Bytes(128 << 20));
  ASSERT_EQ(options->roundup_power2_divisions.size(), 1U);
  EXPECT_EQ(options->roundup_power2_divisions[0].divisions, 4);
}

TEST(ReadAllocator, AnotherKindBeginsWithoutTheKnobsOfTheBase) {
  AllocatorOptions base;
  base.expandable_segments = true;
  const auto arena = Read({"memory_fraction=0.5", "kind=arena"}, base);
  ASSERT_TRUE(arena) << arena.error().Text();
  EXPECT_EQ(arena->kind, AllocatorKind::arena);
  EXPECT_EQ(arena->memory_fraction, 0.5);
  EXPECT_FALSE(arena->expandable_segments);
  EXPECT_TRUE(Read({"kind=torch-caching"}, base)->expandable_segments);
}

TEST(ReadAllocator, RefusesWhatAJobsAllocatorWouldRefuse) {
  EXPECT_THAT(Read({"kind=tcmalloc"}).error().Text(), HasSubstr("torch-caching"));
  EXPECT_THAT(Read({"expandible_segments=true"}).error().Text(), HasSubstr("expandable_segments"));
  EXPECT_THAT(Read({"kind=exact", "max_split_size=128 MiB"}).error().Text(), HasSubstr("no such knob"));
  EXPECT_THAT(Read({"layout.tp=2"}).error().Text(), HasSubstr("allocator.layout.tp"));
}

TEST(AllocatorOfJobYaml, IsThatOfTheJob) {
  EXPECT_EQ(*AllocatorOfJobYaml(""), AllocatorOptions{});
  const auto options = AllocatorOfJobYaml(
      "strategy: ddp-last\nallocator: {kind: torch-caching, expandable_segments: true, max_split_size: null}\n");
  ASSERT_TRUE(options) << options.error().Text();
  EXPECT_TRUE(options->expandable_segments);
  EXPECT_EQ(options->max_split, Bytes(0));
}

TEST(AllocatorText, NamesTheKindAndWhatIsNotAtItsDefault) {
  EXPECT_EQ(AllocatorText({}), "torch-caching");
  AllocatorOptions options;
  options.expandable_segments = true;
  options.large_segment = Bytes(64 << 20);
  EXPECT_EQ(AllocatorText(options), "torch-caching expandable_segments=true large_segment_size=64MiB");
  EXPECT_EQ(AllocatorText({.kind = AllocatorKind::cuda_async}), "cuda-async");
}

TEST(AllocatorSettings, ReadBackAsTheSameAllocator) {
  AllocatorOptions options;
  options.max_split = Bytes((200 << 20) + 1);
  options.roundup_power2_divisions = {{Bytes(0), 4}};
  options.memory_fraction = 0.9;
  options.garbage_collection_threshold = 0.5;
  EXPECT_EQ(*Read(AllocatorSettings(options)), options);
  options = {.kind = AllocatorKind::cuda_async, .release_threshold = Bytes(1 << 30)};
  EXPECT_EQ(*Read(AllocatorSettings(options)), options);
}

}  // namespace
}  // namespace tidemark::read_allocator_test
