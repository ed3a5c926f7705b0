// SPDX-License-Identifier: Apache-2.0
#include "models/job/job_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models/machine/presets.h"
#include "tests/models/job_fixture.h"

namespace tidemark::job_template_test {
namespace {

const std::vector<std::vector<std::string>> kChanges = {
    {},
    {"machine.processors=7"},
    {"machine.processors=8", "machine.device_memory=1GiB"},
    {"machine.processors=0"},
    {"machine=a100-sxm-40gb"},
    {"machine=a100-sxm-40gb", "machine.processors=9"},
    {"machine={from: a100-sxm-80gb, processors: 10}"},
    {"machine.context.low=100 GiB"},
    {"machine=nosuch"},
    {"machine={processors: 10}"},
    {"machine.processors=7"},
};

class JobTemplates : public ::testing::Test {
 protected:
  Result<Job> Changed(JobTemplate& source, const std::vector<std::string>& set) {
    std::vector<JobChange> changes;
    for (const std::string& text : set) {
      changes.push_back(*ParseJobChange(text, "--set"));
    }
    std::vector<const JobChange*> pointers;
    for (const JobChange& change : changes) {
      pointers.push_back(&change);
    }
    return source.With(pointers);
  }

  const std::vector<StrategyDefaults> strategies_ = TestStrategies();
};

// What a template remembers of machines never shows: each change gives what a reading of its own gives.
TEST_F(JobTemplates, SayOfEachChangeWhatAReadingOfItsOwnSays) {
  const std::string from_inside = [] {
    std::string text = SmallJob();
    return text.replace(text.find("h100-sxm-80gb"), 13, "{from: a100-sxm-40gb, name: mine, workspace: 32 MiB}");
  }();
  for (const std::string& text : {SmallJob(), from_inside}) {
    Result<JobTemplate> source = JobTemplate::Parse(text, "runs/job.yaml", {}, strategies_);
    ASSERT_TRUE(source.ok()) << source.error().Text();
    for (const std::vector<std::string>& set : kChanges) {
      const Result<Job> changed = Changed(*source, set), read = Parse(text, set);
      ASSERT_EQ(changed.ok(), read.ok()) << ::testing::PrintToString(set);
      if (!read.ok()) {
        EXPECT_EQ(changed.error().Text(), read.error().Text());
        continue;
      }
      EXPECT_EQ(changed->machine, read->machine) << ::testing::PrintToString(set);
      EXPECT_EQ(changed->SourceOf("machine"), read->SourceOf("machine"));
    }
  }
}

// The file, found from the job's folder, is gone when the second change comes.
TEST_F(JobTemplates, ReadTheFileOfAMachineOnce) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "job_template_test";
  std::filesystem::create_directories(folder / "machines");
  std::ofstream(folder / "machines" / "own.yaml") << "from: h100-sxm-80gb\nworkspace: 3 MiB\n";
  std::string text = SmallJob();
  text.replace(text.find("h100-sxm-80gb"), 13, "machines/own.yaml");
  Result<JobTemplate> source = JobTemplate::Parse(text, (folder / "job.yaml").string(), {}, strategies_);
  ASSERT_TRUE(source.ok()) << source.error().Text();
  const Result<Job> first = Changed(*source, {"machine.processors=7"});
  std::filesystem::remove_all(folder);
  const Result<Job> second = Changed(*source, {"machine.processors=8"});
  ASSERT_TRUE(first.ok() && second.ok()) << (first.ok() ? second : first).error().Text();
  EXPECT_EQ(second->machine.processors, 8);
  EXPECT_EQ(second->machine.workspace, Bytes(3 << 20));
  EXPECT_EQ(first->machine.workspace, second->machine.workspace);
}

TEST_F(JobTemplates, AChangeToAMachineIsNotRememberedForTheNext) {
  Result<JobTemplate> source = JobTemplate::Parse(SmallJob(), "runs/job.yaml", {}, strategies_);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(Changed(*source, {"machine.processors=7"})->machine.processors, 7);
  EXPECT_EQ(Changed(*source, {"machine.workspace=1 MiB"})->machine.processors, 132);
  EXPECT_EQ(Changed(*source, {})->machine, *FindMachine("h100-sxm-80gb", {}));
}

// There is nothing else that queries, keys and values could be views of.
TEST(Derived, PackingFollowsViewsUnlessItIsSaid) {
  const Result<Job> apart = Parse(SmallJob()), views = Parse(SmallJob(), {"network.qkv_views=true"}),
                    said = Parse(SmallJob(), {"network.qkv_views=true", "packing.qkv=separate"});
  ASSERT_TRUE(apart.ok() && views.ok() && said.ok());
  EXPECT_FALSE(apart->axes.packing.qkv);
  EXPECT_TRUE(views->axes.packing.qkv);
  EXPECT_EQ(views->SourceOf("packing.qkv"), "follows network.qkv_views");
  EXPECT_FALSE(said->axes.packing.qkv);
}

}  // namespace
}  // namespace tidemark::job_template_test
