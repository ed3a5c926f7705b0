// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::ddp_settings_test {
namespace {

// DistributedDataParallel's own settings change where gradients lie and when buckets are rebuilt, never what is
// learned.

struct Settings {
  const char* name;
  bool view, keeps, static_graph, finds_unused;
};

class DdpSettings : public testing::TestWithParam<Settings> {
 protected:
  /// On three ranks, in several buckets once they are rebuilt: a gradient of the smallest weights has 2 KiB.
  static Job JobOf(const std::string& strategy, std::int64_t microbatches) {
    Job job = SmallJob(strategy);
    job.layout.dp = 3;
    job.accumulation_steps = microbatches;
    Axes& axes = job.axes;
    axes.sync.first_bucket_bytes = Bytes(5000);
    axes.sync.bucket_bytes = Bytes(20'000);
    axes.sync.static_graph = GetParam().static_graph;
    axes.sync.find_unused_parameters = GetParam().finds_unused;
    axes.buffers.gradient_as_bucket_view = GetParam().view;
    axes.buffers.set_to_none = !GetParam().keeps;
    return job;
  }

  template <class Body>
  static void EachJob(Body body) {
    for (const char* strategy : {"ddp-every", "ddp-last", "ddp-forward-outside", "single-backward"}) {
      for (const std::int64_t microbatches : {1, 2, 3}) {
        SCOPED_TRACE(testing::Message() << strategy << " with " << microbatches);
        if (const Job job = JobOf(strategy, microbatches); FindStrategy(strategy)->Accept(job)) {
          body(job);
        }
      }
    }
  }
};

// A static graph's buckets are rebuilt in the third step, from gradients that lie in the first ones where they are
// kept.
TEST_P(DdpSettings, LearnAsOneRankDoes) {
  constexpr std::int64_t kSteps = 4;
  const RunOptions exact{.seed = 7, .exact = true};
  EachJob([&](const Job& job) {
    Job one = SmallJob("ddp-every");
    one.micro_batch_size = job.micro_batch_size * job.accumulation_steps * job.layout.dp;
    one.accumulation_steps = 1;
    const RunOutcome plain = Executed(one, kSteps, exact);
    const std::vector<RunOutcome> runs = ExecutedTogether(job, kSteps, exact);
    for (std::size_t step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(*runs.front().steps[step].loss, *plain.steps[step].loss, 1e-10) << step;
    }
  });
}

TEST_P(DdpSettings, AllocateWhatWasPredictedEventByEvent) {
  const auto text = [](const Trace& trace, const MemoryEvent& event) {
    const TraceTensor& tensor = trace.tensors[event.tensor.index];
    return tensor.name + (event.alloc ? " +" : " -") + std::to_string(tensor.bytes.count());
  };
  EachJob([&](const Job& job) {
    PredictOptions options;
    options.steps = FirstSteps(4);
    const Prediction prediction = *Predict(job, options);
    const Trace& predicted = *prediction.roles.front().trace;
    for (const RunOutcome& run : ExecutedTogether(job, 4)) {
      ASSERT_EQ(run.trace.memory.size(), predicted.memory.size());
      for (std::size_t i = 0; i < predicted.memory.size(); ++i) {
        ASSERT_EQ(text(run.trace, run.trace.memory[i]), text(predicted, predicted.memory[i])) << "event " << i;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Execute, DdpSettings,
                         testing::Values(Settings{"views", true, false, false, false},
                                         Settings{"views_that_are_kept", true, true, false, false},
                                         Settings{"kept", false, true, false, false},
                                         Settings{"static_graph", false, false, true, false},
                                         Settings{"static_graph_with_views", true, false, true, false},
                                         Settings{"static_graph_with_views_that_are_kept", true, true, true, false},
                                         Settings{"unused", false, false, false, true},
                                         Settings{"unused_with_views_that_are_kept", true, true, false, true}),
                         [](const auto& settings) { return settings.param.name; });

// Two layers of eight weights (gate and up are one), an embedding, a norm and a head; int32.
TEST(UsedParameters, AreANumberEach) {
  Job job = SmallJob("ddp-last");
  job.layout.dp = 3;
  job.axes.sync.find_unused_parameters = true;
  for (const RunOutcome& run : ExecutedTogether(job, 2)) {
    std::set<std::int64_t> sizes;
    for (const TraceTensor& tensor : run.trace.tensors) {
      if (tensor.name == "used parameters") {
        sizes.insert(tensor.bytes.count());
      }
    }
    EXPECT_EQ(sizes, std::set<std::int64_t>{4 * (2 * 8 + 3)});
  }
}

}  // namespace
}  // namespace tidemark::ddp_settings_test
