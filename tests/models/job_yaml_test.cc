// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <random>
#include <string>
#include <variant>
#include <vector>

#include "tests/models/job_fixture.h"

namespace tidemark::job_yaml_test {
namespace {

/// Everything of a job but where its values came from.
void ExpectEqualJobs(const Job& a, const Job& b) {
  EXPECT_EQ(a.network, b.network);
  EXPECT_EQ(a.machine, b.machine);
  EXPECT_EQ(a.sequence_length, b.sequence_length);
  EXPECT_EQ(a.micro_batch_size, b.micro_batch_size);
  EXPECT_EQ(a.accumulation_steps, b.accumulation_steps);
  EXPECT_EQ(a.layout, b.layout);
  EXPECT_EQ(a.strategy, b.strategy);
  EXPECT_EQ(a.axes, b.axes);
  EXPECT_EQ(a.schedule, b.schedule);
  EXPECT_EQ(a.optimizer, b.optimizer);
  EXPECT_EQ(a.allocator, b.allocator);
}

TEST(JobYaml, SaysWhereEachValueCameFrom) {
  const std::string yaml = JobYaml(MustParse(SmallJob("layout: {dp: 4}\n"), {"schedule=gpipe"}));
  EXPECT_THAT(yaml, ::testing::HasSubstr("  dp: 4  # from job.yaml:12\n"));
  EXPECT_THAT(yaml, ::testing::HasSubstr("schedule: gpipe  # --set\n"));
  EXPECT_THAT(yaml, ::testing::HasSubstr("  first_bucket_bytes: 1048576  # default of plain\n"));
}

TEST(JobYaml, KeepsWhatWasAssumedMarked) {
  const Job job = MustParse(SmallJob("assumed: [machine]\n"));
  EXPECT_EQ(job.SourceOf("machine"), "assumed");
  EXPECT_EQ(MustParse(JobYaml(job)).SourceOf("machine"), "assumed");
}

TEST(JobYaml, WritesAMachineThatIsNoPresetInFull) {
  const Job job = MustParse(SmallJob(), {"machine.device_memory=40 GiB", "machine.name=half"});
  EXPECT_EQ(job.machine.device_memory, Bytes(std::int64_t{40} << 30));
  ExpectEqualJobs(MustParse(JobYaml(job)), job);
}

TEST(JobYaml, WritesTablesAndPatterns) {
  const Job job = MustParse(
      "network: {name: \"odd: #name\", trainable: [\"b.*\"], table: [{name: a, parameters: 7, saved_bytes: 3}, {name: "
      "b, count: 2, "
      "parameters: 5, forward_ns: 10}]}\nmachine: cpu\nstrategy: plain\nsequence_length: 1\n");
  EXPECT_EQ(job.network.name, "odd: #name");
  ExpectEqualJobs(MustParse(JobYaml(job)), job);
}

TEST(JobYaml, WritesOfHowManySamplesATableIsAndWhatOnlyItsBackwardPassNeeds) {
  const std::string rest = "machine: cpu\nstrategy: plain\nsequence_length: 1\n";
  const std::string rows = "table: [{name: a, saved_bytes: 3, backward_transient_bytes: 0}, {name: b}]";
  const Job job = MustParse("network: {table_samples: 96, " + rows + "}\n" + rest);
  const Table& table = std::get<Table>(job.network.shape);
  EXPECT_EQ(table.samples, 96);
  EXPECT_EQ(table.rows[0].backward_transient_bytes, 0);
  EXPECT_FALSE(table.rows[1].backward_transient_bytes.has_value());
  ExpectEqualJobs(MustParse(JobYaml(job)), job);
  ExpectEqualJobs(MustParse("network: " + TableYaml(job.network.name, table) + "\n" + rest), job);
  EXPECT_THAT(JobYaml(MustParse("network: {" + rows + "}\n" + rest)),
              ::testing::Not(::testing::HasSubstr("table_samples")));
  EXPECT_THAT(Refusal("network: {table_samples: 0, " + rows + "}\n" + rest), ::testing::HasSubstr("table_samples"));
  EXPECT_THAT(Refusal("network: {from: gpt2, table_samples: 3}\n" + rest), ::testing::HasSubstr("the network is none"));
}

TEST(JobYaml, ReadsBackAsTheSameJobForRandomJobs) {
  const std::vector<std::vector<std::string>> choices = {
      {"strategy=plain", "strategy=nanotron"},
      {"layout.tp=1", "layout.tp=2", "layout.tp=4"},
      {"layout.dp=1", "layout.dp=6"},
      {"layout.pp=1", "layout.pp=2", "layout.layers_per_stage=[3, 1]"},
      {"network=gpt2", "network=llama-3-8b", "network.dropout=0.1", "network.norm=layer",
       "network.trainable=[\"layer.*\"]"},
      {"machine=cpu", "machine=v100-sxm-32gb", "machine.overlap_slowdown=1.25"},
      {"sync.when=last", "sync.overlap=false", "sync.collective=reduce_scatter", "sync.bucket_bytes=1 GB"},
      {"shard.params=true", "shard.optimizer=true", "shard.replicas=3", "shard.reshard_after_forward=false"},
      {"buffers.tp_gather=cached", "buffers.tp_gather=fresh", "buffers.gradient_as_bucket_view=true",
       "buffers.fused_glu=false", "buffers.fused_rope=false"},
      {"precision.params=fp32", "precision.master=none", "precision.master=fp32", "precision.optimizer=fp16"},
      {"optimizer=sgd", "optimizer=sgd-momentum", "schedule=gpipe", "loss=softmax-saving", "packing.qkv=packed"},
      {"allocator.kind=exact", "allocator.expandable_segments=true", "accumulation_steps=7"},
      {"allocator.kind=arena", "allocator.kind=cuda-async", "allocator.max_split_size=200 MiB",
       "allocator.roundup_power2_divisions=4", "allocator.roundup_power2_divisions=128:8,256:16,512:1,2048:8,>:2"},
      {"allocator.memory_fraction=0.9", "allocator.large_segment_size=40 MiB",
       "allocator.max_non_split_rounding=30 MiB", "allocator.release_threshold=1 GiB"}};
  std::mt19937 random(20240711);
  int read = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<std::string> set;
    for (const std::vector<std::string>& axis : choices) {
      if (const std::size_t pick = random() % (axis.size() + 1); pick < axis.size()) {
        set.push_back(axis[pick]);
      }
    }
    const Result<Job> job = Parse(SmallJob(), set);
    if (!job) {
      continue;  // a combination that does not go together
    }
    ++read;
    const std::string yaml = JobYaml(*job);
    ExpectEqualJobs(MustParse(yaml), *job);
    ASSERT_FALSE(::testing::Test::HasFailure()) << yaml;
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace tidemark::job_yaml_test
