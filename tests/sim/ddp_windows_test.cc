// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/base/sanitizer.h"
#include "tests/sim/dice.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"

// When DDP communicates and what it holds meanwhile. Counts per microbatch and memory in units of P (bytes of the
// parameters) are those measured with PyTorch 1.13 on 2 and 4 processes.

namespace tidemark::ddp_windows_test {
namespace {

constexpr std::int64_t kP = 221'267'968;

bool Accepts(const Job& job) {
  const Result<Strategy> strategy = FindStrategy(job.strategy);
  return strategy.ok() && strategy->Accept(job).ok();
}

bool DeclaredWrong(const Job& job) { return FindStrategy(job.strategy)->DeclaredWrong(job).has_value(); }

/// Well-formed, and right unless the job is one of the declared mistakes: Lower itself sees to that, but not under
/// sanitizers (tests/CMakeLists.txt).
StepProgram Lowered(const Job& job, StepKind kind = StepKind::steady) {
  Result<StepProgram> step = Lower(job, kind);
  EXPECT_TRUE(step.ok()) << step.error().message;
  const bool declared = DeclaredWrong(job);
  for (const Finding& finding : kSanitized ? Verify(*step) : std::vector<Finding>()) {
    EXPECT_TRUE(declared && IsWrongResult(finding.rule)) << finding.message;
  }
  return std::move(*step);
}

std::int64_t WireOf(const Job& job, StepKind kind = StepKind::steady) {
  std::int64_t wire = 0;
  for (const CommunicationRow& row : CountCommunication(Lowered(job, kind).roles.front())) {
    wire += row.wire.count();
  }
  return wire;
}

Evaluation SimulateJob(const Job& job, StepKind kind = StepKind::steady) {
  const StepProgram step = Lowered(job, kind);
  return Simulate(step, PriceAll(step, job.machine));
}

/// The microbatches whose backward pass is followed by a reduction, and those behind which the optimizer steps.
struct Timeline {
  std::vector<std::int64_t> reduced, stepped;
};

Timeline TimelineOf(const Job& job, StepKind kind = StepKind::steady) {
  Timeline timeline;
  std::int64_t microbatch = -1;
  for (const Node& node : Unroll(Lowered(job, kind).roles.front()).nodes) {
    if (const auto* begin = std::get_if<Begin>(&node)) {
      microbatch = begin->phase == Phase::backward ? begin->microbatch.offset : microbatch;
      if (begin->phase == Phase::optimizer) {
        timeline.stepped.push_back(microbatch);
      }
    } else if (std::holds_alternative<Collective>(node) &&
               (timeline.reduced.empty() || timeline.reduced.back() != microbatch)) {
      timeline.reduced.push_back(microbatch);
    }
  }
  return timeline;
}

Job CustomJob(std::int64_t steps, const std::string& synchronise, const std::string& step = "") {
  Job job = OracleJob("ddp-last", steps);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = synchronise;
  job.axes.sync.step_expression = step;
  return job;
}

std::int64_t GradientLike(const CategoryBytes& live) {
  return (live[Category::gradient] + live[Category::bucket]).count();
}

using Order = std::vector<std::int64_t>;

TEST(DdpWindows, AForwardOutsideNoSyncCommunicatesInEveryMicrobatchAndCostsNothingElse) {
  for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
    const Job outside = OracleJob("ddp-forward-outside", 4);
    EXPECT_EQ(SimulateJob(outside, kind), SimulateJob(OracleJob("ddp-every", 4), kind));
    EXPECT_EQ(WireOf(outside, kind), 1'327'607'808);
  }
  EXPECT_FALSE(DeclaredWrong(OracleJob("ddp-forward-outside", 4)));
  EXPECT_EQ(TimelineOf(OracleJob("ddp-forward-outside", 4)).reduced, (Order{0, 1, 2, 3}));
}

TEST(DdpWindows, WithoutDeferralAccumulatingFourMicrobatchesPaysFourWholeStepsOfCommunication) {
  EXPECT_EQ(WireOf(OracleJob("ddp-every", 4)), 4 * WireOf(OracleJob("ddp-every", 1)));
  EXPECT_EQ(WireOf(OracleJob("ddp-last", 4)), WireOf(OracleJob("ddp-every", 1)));
}

TEST(DdpWindows, AForwardOutsideNoSyncIsRefusedWhereNothingIsDeferred) {
  for (const Sync::When when : {Sync::When::every, Sync::When::custom}) {
    Job job = OracleJob("ddp-forward-outside", 4);
    job.axes.sync.when = when;
    job.axes.sync.expression = when == Sync::When::custom ? "(i + 1) % steps == 0" : "";
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    ASSERT_FALSE(step.ok());
    EXPECT_EQ(step.error().where, "sync.forward_in_no_sync");
  }
}

// The published predicate: synchronise and step where i % (steps - 1) == 0. Windows of one microbatch and then of
// steps - 1, each divided by steps.
TEST(DdpWindows, ThePublishedBoundaryPredicateStepsAtTheFirstMicrobatchAndTooOftenAfterIt) {
  const std::vector<std::pair<std::int64_t, Order>> expected = {{2, {0, 1}}, {3, {0, 2}}, {4, {0, 3}}, {5, {0, 4}}};
  for (const auto& [steps, at] : expected) {
    const Job job = CustomJob(steps, "i % (steps - 1) == 0");
    for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
      EXPECT_EQ(TimelineOf(job, kind).stepped, at);
      EXPECT_EQ(TimelineOf(job, kind).reduced, at);
    }
    EXPECT_TRUE(DeclaredWrong(job));
  }
  const Result<StepProgram> one = Lower(CustomJob(1, "i % (steps - 1) == 0"), StepKind::steady);
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.error().where, "sync.expression");
}

TEST(DdpWindows, TheRightPredicateIsAnOrdinaryWindow) {
  for (const std::int64_t steps : {2, 3, 4, 5}) {
    const Job job = CustomJob(steps, "(i + 1) % steps == 0");
    EXPECT_EQ(TimelineOf(job).stepped, Order{steps - 1});
    EXPECT_EQ(SimulateJob(job), SimulateJob(OracleJob("ddp-last", steps)));
    EXPECT_FALSE(DeclaredWrong(job));
  }
}

TEST(DdpWindows, ReducingTwiceInOneWindowIsExactAndCostsASecondReduction) {
  for (const bool view : {false, true}) {
    Job job = CustomJob(4, "i == 1 or i == 3", "i == 3");
    job.axes.buffers.gradient_as_bucket_view = view;
    EXPECT_FALSE(DeclaredWrong(job));
    for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
      EXPECT_EQ(TimelineOf(job, kind).reduced, (Order{1, 3}));
    }
    EXPECT_EQ(WireOf(job), 2 * WireOf(OracleJob("ddp-last", 4)));
  }
}

TEST(DdpWindows, AfterAReductionViewsAccumulateInTheBucket) {
  Job job = CustomJob(4, "i == 1 or i == 3", "i == 3");
  job.axes.buffers.gradient_as_bucket_view = true;
  const Ledger ledger = Audit(Lowered(job), job.machine);
  EXPECT_EQ(GradientLike(ledger.between_microbatches.at(1)), 2 * kP);
  EXPECT_EQ(GradientLike(ledger.between_microbatches.at(2)), kP);
  EXPECT_EQ(GradientLike(ledger.between_microbatches.at(3)), kP);
}

TEST(DdpWindows, AWindowThatEndsInsideNoSyncRunsAndIsDeclaredWrong) {
  const Job job = CustomJob(4, "i == 2", "i == 3");
  EXPECT_TRUE(DeclaredWrong(job));
  EXPECT_EQ(TimelineOf(job).reduced, Order{2});
  const Job never = CustomJob(4, "i == 9", "i == 3");
  for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
    EXPECT_TRUE(TimelineOf(never, kind).reduced.empty());
  }
}

TEST(DdpWindows, AShortLastWindowDividedByAFullOnesMicrobatchesIsDeclaredWrong) {
  Job job = OracleJob("ddp-last", 4);
  job.last_window = {LastWindow::Policy::not_rescaled, 3};
  EXPECT_TRUE(DeclaredWrong(job));
  EXPECT_EQ(TimelineOf(job).reduced, Order{2});
  job.last_window.policy = LastWindow::Policy::rescaled;
  EXPECT_FALSE(DeclaredWrong(job));
  EXPECT_EQ(TimelineOf(job).stepped, Order{2});
}

TEST(DdpWindows, ADroppedWindowNeitherCommunicatesNorSteps) {
  for (const bool in_place : {false, true}) {
    for (const bool view : {false, true}) {
      Job job = OracleJob("ddp-last", 4);
      job.last_window = {LastWindow::Policy::drop, 3};
      job.axes.buffers.set_to_none = !in_place;
      job.axes.buffers.gradient_as_bucket_view = view;
      for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
        const Timeline timeline = TimelineOf(job, kind);
        EXPECT_TRUE(timeline.reduced.empty() && timeline.stepped.empty());
      }
    }
  }
}

TEST(DdpWindows, MomentsAppearWithTheFirstOfSeveralUpdates) {
  const Job job = CustomJob(6, "(i + 1) % 2 == 0");
  const Ledger ledger = Audit(Lowered(job, StepKind::first), job.machine);
  EXPECT_EQ(ledger.between_microbatches.at(1)[Category::optimizer].count(), 0);
  EXPECT_EQ(ledger.between_microbatches.at(2)[Category::optimizer].count(), 2 * kP);
  EXPECT_EQ(ledger.between_microbatches.at(5)[Category::optimizer].count(), 2 * kP);
  EXPECT_EQ(TimelineOf(job, StepKind::first).stepped, (Order{1, 3, 5}));
}

TEST(DdpWindows, GradientsZeroedInPlaceStayFromTheFirstUpdateOn) {
  Job job = CustomJob(4, "(i + 1) % 2 == 0");
  job.axes.buffers.set_to_none = false;
  const Ledger first = Audit(Lowered(job, StepKind::first), job.machine);
  EXPECT_EQ(GradientLike(first.between_microbatches.at(0)), kP);
  EXPECT_EQ(GradientLike(first.between_microbatches.at(2)), 2 * kP);
  EXPECT_EQ(GradientLike(first.after_optimizer), 2 * kP);
  job.axes.buffers.gradient_as_bucket_view = true;
  const Ledger views = Audit(Lowered(job, StepKind::first), job.machine);
  EXPECT_EQ(GradientLike(views.between_microbatches.at(1)), 2 * kP);
  EXPECT_EQ(GradientLike(views.between_microbatches.at(3)), kP);
}

/// The model of the memory measurements: V = 8000, and three microbatches. Largest gradient: 8,192,000 elements.
Job MeasuredJob(bool view, bool set_to_none) {
  Job job = OracleJob("ddp-last", 3);
  std::get<Decoder>(job.network.shape).vocabulary = 8000;
  job.axes.buffers.gradient_as_bucket_view = view;
  job.axes.buffers.set_to_none = set_to_none;
  return job;
}

TEST(DdpWindows, GradientsAndBucketsTakeWhatWasMeasured) {
  constexpr std::int64_t kParameters = 2 * 61'481'984;
  constexpr std::int64_t kLargest = 2 * 8'192'000;  // 0.133 P
  struct Row {
    bool view, set_to_none;
    StepKind step;
    std::int64_t before, accumulating, reduced, zeroed, highest;  ///< P beyond the parameters; highest: + kLargest
  };
  const Row rows[] = {
      {false, true, StepKind::first, 1, 2, 2, 1, 2},  {false, true, StepKind::steady, 1, 2, 2, 1, 2},
      {false, false, StepKind::first, 1, 2, 2, 2, 2}, {false, false, StepKind::steady, 2, 2, 2, 2, 2},
      {true, true, StepKind::first, 1, 2, 1, 1, 2},   {true, true, StepKind::steady, 1, 2, 1, 1, 2},
      {true, false, StepKind::first, 1, 2, 1, 1, 2},  {true, false, StepKind::steady, 1, 1, 1, 1, 1},
  };
  for (const Row& row : rows) {
    const Job job = MeasuredJob(row.view, row.set_to_none);
    const Ledger ledger = Audit(Lowered(job, row.step), job.machine);
    EXPECT_EQ(GradientLike(ledger.between_microbatches.at(0)), row.before * kParameters);
    EXPECT_EQ(GradientLike(ledger.between_microbatches.at(1)), row.accumulating * kParameters);
    EXPECT_EQ(GradientLike(ledger.between_microbatches.at(2)), row.accumulating * kParameters);
    EXPECT_EQ(GradientLike(ledger.after_backward.at(2)), row.reduced * kParameters);
    EXPECT_EQ(GradientLike(ledger.at_window_end), row.reduced * kParameters);
    EXPECT_EQ(GradientLike(ledger.after_optimizer), row.zeroed * kParameters);
    const std::int64_t resident = kParameters + (row.step == StepKind::first ? 0 : 2 * kParameters);
    EXPECT_EQ(ledger.highest_system.count(), resident + row.highest * kParameters + kLargest);
  }
}

TEST(DdpWindows, OnlyGradientsInTheBucketMakeARebuildHoldBoth) {
  for (const bool view : {false, true}) {
    for (const bool set_to_none : {false, true}) {
      const Job job = MeasuredJob(view, set_to_none);
      const auto highest = [&](StepKind kind) {
        return Audit(Lowered(job, kind), job.machine).highest_before_backward.count();
      };
      EXPECT_EQ(highest(StepKind::second) - highest(StepKind::steady), view && !set_to_none ? 2 * 61'481'984 : 0);
    }
  }
}

TEST(DdpWindows, EachStepLeavesWhatTheNextOneFinds) {
  const auto residents = [](const Program& role, bool end) {
    std::vector<std::string> names;
    for (const Buffer& buffer : role.buffers) {
      if (end ? buffer.kept : buffer.resident) {
        names.push_back(buffer.name);
      }
    }
    return names;
  };
  for (const char* strategy : {"ddp-every", "ddp-last", "ddp-forward-outside", "nanotron", "single-backward"}) {
    for (const bool view : {false, true}) {
      for (const bool set_to_none : {false, true}) {
        Job job = OracleJob(strategy, 3);
        job.axes.buffers.gradient_as_bucket_view = view;
        job.axes.buffers.set_to_none = set_to_none;
        if (!Accepts(job)) {
          continue;
        }
        const StepProgram first = Lowered(job, StepKind::first), second = Lowered(job, StepKind::second);
        const StepProgram steady = Lowered(job);
        EXPECT_EQ(residents(first.roles[0], true), residents(second.roles[0], false));
        EXPECT_EQ(residents(second.roles[0], true), residents(steady.roles[0], false));
        EXPECT_EQ(residents(steady.roles[0], true), residents(steady.roles[0], false));
      }
    }
  }
}

Job RandomJob(Dice& dice) {
  const char* const strategies[] = {"ddp-every", "ddp-last", "ddp-forward-outside"};
  const char* const predicates[] = {"(i + 1) % steps == 0",        "i % 2 == 1", "i % (steps - 1) == 0",
                                    "i == 1 or i + 1 == steps",    "i > 1",      "i % 3 == 0",
                                    "i + 1 == steps or i % 3 == 0"};
  Job job = OracleJob(strategies[dice.Roll(3)], dice.Number(1, 9));
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = dice.Number(1, 30);
  decoder.vocabulary = 1000;
  decoder.tied_embeddings = dice.OneIn(3);
  job.layout.dp = dice.Number(1, 4);
  Axes& axes = job.axes;
  if (dice.OneIn(2)) {
    axes.sync.when = Sync::When::custom;
    axes.sync.forward_in_no_sync = true;
    axes.sync.expression = predicates[dice.Roll(7)];
    axes.sync.step_expression = dice.OneIn(2) ? "" : predicates[dice.Roll(7)];
  } else if (job.accumulation_steps > 2 && dice.OneIn(2)) {
    job.last_window = {static_cast<LastWindow::Policy>(dice.Roll(4)), dice.Number(1, job.accumulation_steps - 1)};
  }
  axes.buffers.gradient_as_bucket_view = dice.OneIn(2);
  axes.buffers.set_to_none = dice.OneIn(2);
  axes.sync.static_graph = dice.OneIn(3);
  axes.sync.find_unused_parameters = dice.OneIn(3);
  axes.sync.overlap = !dice.OneIn(4);
  axes.sync.first_bucket_bytes = Bytes(dice.Number(1, 4 << 20));
  axes.sync.bucket_bytes = Bytes(dice.Number(1, 64 << 20));
  if (dice.OneIn(4)) {
    job.network.trainable = {dice.OneIn(2) ? "head.*" : "layer.*"};
  }
  if (dice.OneIn(4)) {
    job.axes.sync.when = Sync::When::last;
    job.last_window = {};
    job.layout.pp = 2;
    decoder.layers += decoder.layers % 2;
    job.schedule = dice.OneIn(2) ? Schedule::gpipe : Schedule::one_f_one_b;
  }
  return job;
}

TEST(DdpWindows, HundredsOfVariantsAreRightAndBothEnginesAgree) {
  Dice dice(7);
  int accepted = 0;
  for (int round = 0; round < Rounds(500); ++round) {
    const Job job = RandomJob(dice);
    if (!Accepts(job)) {
      continue;
    }
    ++accepted;
    for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
      const StepProgram step = Lowered(job, kind);
      const std::vector<Costs> costs = PriceAll(step, job.machine);
      ASSERT_EQ(EvaluateClosedForm(step, costs), Simulate(step, costs)) << round;
      ASSERT_FALSE(HasFailure()) << round;
    }
  }
  EXPECT_GT(accepted, Rounds(250));
}

}  // namespace
}  // namespace tidemark::ddp_windows_test
