// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "profiler/execute/numerics.h"
#include "tests/base/sanitizer.h"
#include "tests/profiler/execute/memory_events.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::ddp_settings_test {
namespace {

// DistributedDataParallel's own settings change where gradients lie and when buckets are rebuilt, never what is
// learned.

constexpr std::int64_t kRanks = 3, kSteps = 4;

struct Settings {
  const char* name;
  bool view, keeps, static_graph, finds_unused;
};

void PrintTo(const Settings& settings, std::ostream* out) { *out << settings.name; }

/// In several buckets once they are rebuilt: what is no norm has 4 KiB or more.
Job JobOf(const std::string& strategy, std::int64_t microbatches, const Settings& settings) {
  Job job = SmallJob(strategy);
  job.layout.dp = kRanks;
  job.accumulation_steps = microbatches;
  Axes& axes = job.axes;
  axes.sync.first_bucket_bytes = Bytes(5000);
  axes.sync.bucket_bytes = Bytes(20'000);
  axes.sync.static_graph = settings.static_graph;
  axes.sync.find_unused_parameters = settings.finds_unused;
  axes.buffers.gradient_as_bucket_view = settings.view;
  axes.buffers.set_to_none = !settings.keeps;
  return job;
}

class DdpSettings : public testing::TestWithParam<Settings> {
 protected:
  template <class Body>
  static void EachJob(Body body) {
    const std::vector<std::int64_t> microbatches_of_a_step = AllOrLast<std::int64_t>({1, 2, 3});
    std::ptrdiff_t jobs = 0;
    for (const char* strategy : {"ddp-every", "ddp-last", "ddp-forward-outside", "single-backward"}) {
      for (const std::int64_t microbatches : microbatches_of_a_step) {
        SCOPED_TRACE(testing::Message() << strategy << " with " << microbatches);
        if (const Job job = JobOf(strategy, microbatches, GetParam()); FindStrategy(strategy)->Accept(job)) {
          body(job);
          ++jobs;
        }
      }
    }
    // One backward pass of several graphs beside kept gradients is no model.
    EXPECT_EQ(jobs, (GetParam().keeps ? 3 : 4) * std::ssize(microbatches_of_a_step));
  }
};

// A static graph's buckets are rebuilt in the third step, from gradients that lie in the first ones where they are
// kept.
TEST_P(DdpSettings, LearnAsOneRankDoes) {
  const RunOptions exact{.seed = 7, .exact = true, .keep_gradients = true, .kept_update = kSteps};
  EachJob([&](const Job& job) {
    const RunOutcome& plain = Reference(OneBatch(job), kSteps, exact);
    for (const RunOutcome& run : ExecutedTogether(job, kSteps, exact)) {
      EXPECT_LT(DistanceOf(*Model::Of(job, {0, 1}), run.gradients, plain.gradients, kExactFloor).highest,
                BoundOf(DType::fp64, 0));
      for (std::size_t step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(*run.steps[step].loss, *plain.steps[step].loss, 1e-10) << step;
      }
    }
  });
}

TEST_P(DdpSettings, AllocateWhatWasPredictedEventByEvent) {
  EachJob([&](const Job& job) {
    PredictOptions options;
    options.steps = FirstSteps(kSteps);
    const Prediction prediction = *Predict(job, options);
    const Trace& predicted = *prediction.roles.front().trace;
    for (const RunOutcome& run : ExecutedTogether(job, kSteps)) {
      EXPECT_EQ(MemoryEventsOf(run.trace), MemoryEventsOf(predicted));
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

// A control: a gradient that the second microbatch is added to in its bucket is divided there, or the bound is passed.
TEST(DdpBucketViews, AreFoundWrongWhereNobodyDividesThem) {
  const RunOptions exact{.seed = 7, .exact = true, .keep_gradients = true};
  const Job job = JobOf("ddp-every", 2, {"views", true, false, false, false});
  LoweredSteps lowered(job, 1);
  int scales = 0;
  for (Node& node : lowered.first().nodes) {
    if (auto* scale = std::get_if<Scale>(&node)) {
      scale->factor = Rational(1);
      ++scales;
    }
  }
  EXPECT_GT(scales, 0);
  const ParameterParts& reference = Reference(OneBatch(job), 1, exact).gradients;
  for (const RunOutcome& run : RunTogether(job, lowered.steps(), exact)) {
    EXPECT_GT(DistanceOf(*Model::Of(job, {0, 1}), run.gradients, reference, kExactFloor).highest,
              BoundOf(DType::bf16, 1000));
  }
}

/// What ranks have sent of counts, and what came of it.
struct Counts {
  std::vector<std::int32_t> sent, received;
};

/// A group that notes what is exchanged of int32.
class NotingCommunicator final : public Communicator {
 public:
  NotingCommunicator(std::unique_ptr<Communicator> group, std::vector<Counts>& noted)
      : group_(std::move(group)), noted_(noted) {}
  std::int64_t rank() const override { return group_->rank(); }
  std::int64_t size() const override { return group_->size(); }
  Result<Ticket> Begin(const Exchange& exchange) override {
    if (exchange.dtype == DType::int32) {
      EXPECT_EQ(exchange.kind, CollectiveKind::all_reduce);
      const auto* sent = static_cast<const std::int32_t*>(exchange.from);
      noted_.push_back({{sent, sent + exchange.elements}, {}});
      counted_ = exchange;
    }
    return group_->Begin(exchange);
  }
  Status Finish(Ticket ticket) override {
    const Status done = group_->Finish(ticket);
    if (counted_.to != nullptr && noted_.back().received.empty()) {
      const auto* received = static_cast<const std::int32_t*>(counted_.to);
      noted_.back().received = {received, received + counted_.elements};
    }
    return done;
  }
  Status Send(const Message& message, const void* data) override { return group_->Send(message, data); }
  Result<Ticket> Receive(const Message& message, void* data) override { return group_->Receive(message, data); }

 private:
  std::unique_ptr<Communicator> group_;
  std::vector<Counts>& noted_;
  Exchange counted_{};
};

class NotingWorld final : public World {
 public:
  NotingWorld(World& world, std::vector<Counts>& noted) : world_(world), noted_(noted) {}
  std::int64_t rank() const override { return world_.rank(); }
  std::int64_t size() const override { return world_.size(); }
  std::int64_t ranks_here() const override { return world_.ranks_here(); }
  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    TIDEMARK_ASSIGN(std::unique_ptr<Communicator> group, world_.Split(colour));
    return std::unique_ptr<Communicator>(std::make_unique<NotingCommunicator>(std::move(group), noted_));
  }
  double Highest(double value) override { return world_.Highest(value); }
  double Sum(double value) override { return world_.Sum(value); }
  std::vector<std::string> GatherTexts(const std::string& text) override { return world_.GatherTexts(text); }
  void Abort(int exit_code) override { world_.Abort(exit_code); }

 private:
  World& world_;
  std::vector<Counts>& noted_;
};

// Two layers of eight weights (gate and up are one) are trained, and the head's; every rank has used them all.
TEST(UsedParameters, AreCountedOverAllRanks) {
  Job job = SmallJob("ddp-last");
  job.layout.dp = kRanks;
  job.network.trainable = {"layer.*", "head.lm_head"};
  job.axes.sync.find_unused_parameters = true;
  const LoweredSteps lowered(job, 2);
  std::vector<std::vector<Counts>> noted(kRanks);
  const std::vector<RunOutcome> runs = RunTogether(kRanks, [&](World& world) {
    NotingWorld noting(world, noted[static_cast<std::size_t>(world.rank())]);
    return RunSteps(job, lowered.steps(), {}, noting);
  });
  constexpr std::size_t kTrained = 2 * 8 + 1;
  for (const std::vector<Counts>& of_rank : noted) {
    ASSERT_EQ(of_rank.size(), 2U);  // one in each step
    for (const Counts& counts : of_rank) {
      EXPECT_EQ(counts.sent, std::vector<std::int32_t>(kTrained, 1));
      EXPECT_EQ(counts.received, std::vector<std::int32_t>(kTrained, kRanks));
    }
  }
  for (const TraceTensor& tensor : runs.front().trace.tensors) {
    EXPECT_TRUE(tensor.name != "used parameters" || tensor.bytes == Bytes(4) * kTrained);
  }
}

// What the model has is asked, not what the program says.
TEST(UsedParameters, OfAnotherNumberThanTheModelTrainsAreRefused) {
  Job job = SmallJob("ddp-last");
  job.layout.dp = kRanks;
  job.axes.sync.find_unused_parameters = true;
  LoweredSteps lowered(job, 1);
  EXPECT_TRUE(CheckExecutable(job, lowered.steps(), {}).ok());
  for (Buffer& buffer : lowered.first().buffers) {
    buffer.elements += buffer.name == "used parameters" ? 1 : 0;
  }
  EXPECT_FALSE(CheckExecutable(job, lowered.steps(), {}).ok());
}

}  // namespace
}  // namespace tidemark::ddp_settings_test
