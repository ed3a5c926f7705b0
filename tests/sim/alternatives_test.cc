// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/alternatives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/job/job_template.h"
#include "sim/strategies/strategy.h"

namespace tidemark::alternatives_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class AlternativesTest : public testing::Test {
 protected:
  AlternativesTest()
      : strategies_(KnownStrategies()),
        template_(*JobTemplate::Parse("network: llama-3-8b\nmachine: h100-sxm-80gb\nsequence_length: 4096\n"
                                      "micro_batch_size: 3\naccumulation_steps: 4\n"
                                      "layout: {dp: 4, tp: 2, pp: 2, sp: true}\nstrategy: megatron\n",
                                      "job.yaml", {}, strategies_)) {}

  Job JobWith(const std::vector<std::string>& set) {
    std::vector<JobChange> changes;
    for (const std::string& each : set) {
      changes.push_back(*ParseJobChange(each, "--set"));
    }
    std::vector<const JobChange*> all;
    for (const JobChange& change : changes) {
      all.push_back(&change);
    }
    return *template_.Unchecked(all);
  }

  std::vector<std::string> ValuesOf(const std::string& key, std::int64_t global_batch,
                                    const std::set<std::string>& kept = {}) {
    const std::vector<SweepAxis> axes = Alternatives(JobWith({}), global_batch, kept, {1}, {1});
    const auto axis = std::find_if(axes.begin(), axes.end(), [&](const SweepAxis& each) { return each.key == key; });
    return axis == axes.end() ? std::vector<std::string>() : axis->values;
  }

  std::vector<StrategyDefaults> strategies_;
  JobTemplate template_;
};

TEST_F(AlternativesTest, HaveEveryLayoutOfAsManyRanksOnce) {
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> found;
  const std::vector<std::string> layouts = ValuesOf("layout", 48);
  for (const std::string& layout : layouts) {
    const Job job = JobWith({"layout=" + layout});
    EXPECT_EQ(job.layout.dp * job.layout.tp * job.layout.pp, 16) << layout;
    EXPECT_TRUE(job.layout.sp || job.layout.tp == 1) << "what the layout says beyond sizes stays";
    found.insert({job.layout.dp, job.layout.tp, job.layout.pp});
  }
  // 16 = 2^4 into three factors, of which tp is at most a node's 8 devices: (4 + 2 over 2) - 1.
  EXPECT_EQ(found.size(), 14U);
  EXPECT_EQ(found.size(), layouts.size());
}

// 30 layers: 15 and 15, but 7, 8, 8, 7.
TEST_F(AlternativesTest, DivideLayersOverStagesWithTheRestInTheMiddle) {
  const std::vector<SweepAxis> axes = Alternatives(JobWith({"network.layers=30"}), 48, {"layout.tp"}, {1}, {1});
  const auto axis = std::find_if(axes.begin(), axes.end(), [](const SweepAxis& each) { return each.key == "layout"; });
  EXPECT_THAT(axis->values, testing::Contains("{dp: 2, tp: 2, pp: 4, layers_per_stage: [7, 8, 8, 7]}"));
  EXPECT_THAT(axis->values, testing::Contains("{dp: 8, tp: 2, pp: 1, layers_per_stage: null}"));
  for (const std::string& layout : axis->values) {
    const Job job = JobWith({"network.layers=30", "layout=" + layout});
    std::int64_t sum = 0;
    for (const std::int64_t layers : job.layout.layers_per_stage) {
      sum += layers;
    }
    EXPECT_TRUE(job.layout.layers_per_stage.empty() || sum == 30) << layout;
  }
}

// Of 30 layers two stages of two chunks each hold 7 + 8 and 8 + 7.
TEST_F(AlternativesTest, DealOutLayersToModelChunks) {
  const std::set<std::string> kept = {"layout.tp"};
  for (const char* own : {"layout.vpp=1", "layout.vpp=2"}) {
    const Job job = JobWith({"network.layers=30", "schedule=interleaved", own});
    const std::vector<SweepAxis> axes = Alternatives(job, 48, kept, {1, 2}, {1});
    const auto axis =
        std::find_if(axes.begin(), axes.end(), [](const SweepAxis& each) { return each.key == "layout"; });
    std::set<std::tuple<std::int64_t, std::int64_t, std::vector<std::int64_t>>> found;
    for (const std::string& layout : axis->values) {
      const Layout made = JobWith({"network.layers=30", own, "layout=" + layout}).layout;
      found.insert({made.pp, made.vpp, made.layers_per_stage});
    }
    using Found = std::tuple<std::int64_t, std::int64_t, std::vector<std::int64_t>>;
    EXPECT_THAT(found, testing::IsSupersetOf({Found{4, 1, {7, 8, 8, 7}}, Found{1, 1, {}}, Found{1, 2, {}},
                                              Found{4, 2, {3, 4, 4, 4, 4, 4, 4, 3}}}));
    EXPECT_TRUE(found.contains({2, 2, {7, 8, 8, 7}}) || job.layout.vpp == 2) << "as the job says";
    EXPECT_TRUE(found.contains({2, 1, {}}));
  }
}

// 16 ranks, of which 3 cannot share sequences: 16 = 1 * 16 and 4 * 4, as above with tp kept at 2.
TEST_F(AlternativesTest, ShareSequencesBetweenAsManyRanksAsIsAsked) {
  const std::vector<SweepAxis> axes = Alternatives(JobWith({}), 48, {"layout.tp"}, {1}, {1, 3, 4});
  const auto axis = std::find_if(axes.begin(), axes.end(), [](const SweepAxis& each) { return each.key == "layout"; });
  std::set<std::pair<std::int64_t, std::int64_t>> found;  // cp, pp
  for (const std::string& layout : axis->values) {
    const Job job = JobWith({"layout=" + layout});
    EXPECT_EQ(job.Ranks(), 16) << layout;
    EXPECT_EQ(job.layout.tp, 2) << layout;
    found.insert({job.layout.cp, job.layout.pp});
  }
  EXPECT_EQ(found, (std::set<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 2}, {1, 4}, {1, 8}, {4, 1}, {4, 2}}));
}

// A list that the job has is not that of another layout.
TEST_F(AlternativesTest, TakeNoListOfLayersAlong) {
  const Job job =
      JobWith({"layout={layers_per_stage: [10, 22]}", "layout={dp: 8, tp: 2, pp: 1, layers_per_stage: null}"});
  EXPECT_THAT(job.layout.layers_per_stage, IsEmpty());
}

TEST_F(AlternativesTest, HaveWhatDividesTheGlobalBatchAndTheJobsOwnMicroBatch) {
  EXPECT_THAT(ValuesOf("micro_batch_size", 48), ElementsAre("1", "2", "3", "4", "6", "8", "12", "16", "24", "48"));
  EXPECT_THAT(ValuesOf("micro_batch_size", 7), ElementsAre("1", "3", "7"));
  EXPECT_THAT(ValuesOf("micro_batch_size", 1536), testing::Not(testing::Contains("384")));
  EXPECT_THAT(ValuesOf("micro_batch_size", 1536), testing::IsSupersetOf({"192", "512"}));
}

TEST_F(AlternativesTest, HaveEveryStrategyAndRecomputation) {
  EXPECT_EQ(ValuesOf("strategy", 48).size(), AllStrategies().size());
  EXPECT_THAT(ValuesOf("recompute.policy", 48), testing::IsSupersetOf({"none", "selective", "full"}));
}

TEST_F(AlternativesTest, LeaveWhatIsKept) {
  EXPECT_THAT(ValuesOf("strategy", 48, {"strategy"}), IsEmpty());
  EXPECT_THAT(ValuesOf("layout", 48, {"layout"}), IsEmpty());
  EXPECT_THAT(ValuesOf("layout", 48, {"layout.tp"}),
              UnorderedElementsAre("{dp: 8, tp: 2, pp: 1, layers_per_stage: null}", "{dp: 4, tp: 2, pp: 2}",
                                   "{dp: 2, tp: 2, pp: 4, layers_per_stage: null}",
                                   "{dp: 1, tp: 2, pp: 8, layers_per_stage: null}"));
  EXPECT_THAT(ValuesOf("layout", 48, {"layout.tp", "layout.pp"}), ElementsAre("{dp: 4, tp: 2, pp: 2}"));
}

}  // namespace
}  // namespace tidemark::alternatives_test
