// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/dice.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

// FSDP2's settings on the model of the worked numbers: 110,633,984 parameters, N = 4, bf16 for compute, fp32 shards and
// reduction where not said otherwise.

namespace tidemark::strategy_fsdp2_settings_test {
namespace {

Job Changed(Job job, const std::function<void(Axes&)>& change) {
  change(job.axes);
  return job;
}

/// What units hold beyond shards, moments and sharded gradients, just before `line` in the first `phase`.
std::int64_t WorkingSetBefore(const Program& rolled, Phase phase, const std::string& line) {
  const Program program = Unroll(rolled);
  std::int64_t live = 0;
  bool inside = false;
  for (const Node& node : program.nodes) {
    const auto* begin = std::get_if<Begin>(&node);
    inside = begin != nullptr ? begin->phase == phase : inside && !std::holds_alternative<End>(node);
    if (inside && Print(program, node) == line) {
      return live;
    }
    const auto count = [&](const BufferRef& ref, std::int64_t sign) {
      const Buffer& buffer = program.buffers[ref.buffer.index];
      const bool unit = buffer.category == Category::parameter || buffer.category == Category::bucket ||
                        (buffer.category == Category::gradient && !buffer.name.starts_with("sharded"));
      live += unit ? sign * buffer.bytes().count() : 0;
    };
    if (const auto* alloc = std::get_if<Alloc>(&node)) {
      count(alloc->buffer, 1);
    } else if (const auto* free = std::get_if<Free>(&node)) {
      count(free->buffer, -1);
    }
  }
  ADD_FAILURE() << "no " << line;
  return -1;
}

// u = 11,274,240 parameters of a layer, bf16 for compute, fp32 reduction.
constexpr std::int64_t kLayer = 11'274'240;

TEST(Fsdp2Settings, AMiddleLayersForwardHoldsTwoCopiesOfItsUnit) {
  const std::string end = R"(free "unsharded layer.norm1"[2])";
  const Job job = OracleJob("fsdp2-scatter-each", 1);
  // The gather buffer and the parameters copied out of it.
  EXPECT_EQ(WorkingSetBefore(Sound(job).roles.front(), Phase::forward, end), 2 * 2 * kLayer);
}

TEST(Fsdp2Settings, EachUnitPrefetchedInForwardIsOneCopyMore) {
  Job job = OracleJob("fsdp2-scatter-each", 1);
  std::get<Decoder>(job.network.shape).layers = 12;
  for (const std::int64_t ahead : {0, 1, 2, 4}) {
    job.axes.shard.prefetch_forward = ahead;
    EXPECT_EQ(WorkingSetBefore(Sound(job).roles.front(), Phase::forward, R"(free "unsharded layer.norm1"[5])"),
              (2 + ahead) * 2 * kLayer);
  }
}

TEST(Fsdp2Settings, AMiddleLayersBackwardHoldsTenBytesAParameter) {
  const Program program = Sound(OracleJob("fsdp2-scatter-each", 1)).roles.front();
  // Parameters 2u, the next unit's gather buffer 2u, the previous scatter's input 4u, gradients 2u.
  EXPECT_EQ(WorkingSetBefore(program, Phase::backward, R"(free "unsharded layer.norm1"[1])"), 112'742'400);
  // Behind it: next gather buffer 2u, this scatter's input 4u, gradients 2u.
  EXPECT_EQ(WorkingSetBefore(program, Phase::backward, R"(free "gradient of layer.norm1"[1])"), 8 * kLayer);
}

TEST(Fsdp2Settings, PrefetchingInBackwardChangesTheWorkingSetByUnits) {
  Job job = OracleJob("fsdp2-scatter-each", 1);
  std::get<Decoder>(job.network.shape).layers = 12;
  for (const std::int64_t ahead : {0, 1, 2, 3}) {
    job.axes.shard.prefetch_backward = ahead;
    EXPECT_EQ(WorkingSetBefore(Sound(job).roles.front(), Phase::backward, R"(free "unsharded layer.norm1"[5])"),
              (2 + 4 + 2 + 2 * ahead) * kLayer);
  }
}

TEST(Fsdp2Settings, PrefetchingDoesNotChangeWhatIsGatheredNorGrowTheProgramWithLayers) {
  const auto lowered = [](std::int64_t layers, std::int64_t forward, std::int64_t backward) {
    Job job = OracleJob("fsdp2-scatter-each", 2);
    std::get<Decoder>(job.network.shape).layers = layers;
    job.axes.shard.prefetch_forward = forward;
    job.axes.shard.prefetch_backward = backward;
    return Sound(job).roles.front();
  };
  // A unit more is the same leaves more, however many layers were folded into loops.
  const auto leaves = [&](std::int64_t layers) { return CountLeaves(lowered(layers, 3, 2)); };
  EXPECT_EQ(leaves(41) - leaves(40), leaves(6) - leaves(5));
  EXPECT_EQ(leaves(63) - leaves(61), 2 * (leaves(6) - leaves(5)));
  EXPECT_EQ(lowered(126, 3, 2).nodes.size(), lowered(66, 3, 2).nodes.size());
  EXPECT_EQ(CountCommunication(lowered(9, 3, 2)).front().payload, CountCommunication(lowered(9, 0, 1)).front().payload);
}

TEST(Fsdp2Settings, TheLastUnitIsGatheredTwiceOnlyWhereItIsResharded) {
  const auto gathers = [](const std::function<void(Axes&)>& change) {
    const Job job = Changed(OracleJob("fsdp2-scatter-each", 1), change);
    return CountCommunication(Sound(job).roles.front()).front().count;
  };
  // Embedding and four layers twice, norm and head once.
  EXPECT_EQ(gathers([](Axes&) {}), 11);
  EXPECT_EQ(gathers([](Axes& axes) { axes.shard.reshard_last_unit = true; }), 12);
  EXPECT_EQ(gathers([](Axes& axes) { axes.shard.gathered_layers = 1; }), 10);
  EXPECT_EQ(gathers([](Axes& axes) { axes.shard.gathered_layers = 4; }), 7);
  EXPECT_EQ(gathers([](Axes& axes) { axes.shard.gathered_layers = 99; }), 7);
  EXPECT_EQ(gathers([](Axes& axes) { axes.shard.reshard_after_forward = false; }), 6);
}

TEST(Fsdp2Settings, ATiedUnitIsReshardedBehindItsHeadWhereTheLastUnitIs) {
  Job job = OracleJob("fsdp2-scatter-each", 2);
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  // Per microbatch the tied unit once and four layers twice; or all five twice.
  EXPECT_EQ(CountCommunication(Sound(job).roles.front()).front().count, 18);
  job.axes.shard.reshard_last_unit = true;
  EXPECT_EQ(CountCommunication(Sound(job).roles.front()).front().count, 20);
}

TEST(Fsdp2Settings, LayersKeptGatheredAreHeldFromForwardToBackward) {
  const auto held = [](std::int64_t layers) {
    Job job = OracleJob("fsdp2-scatter-each", 1);
    job.axes.shard.gathered_layers = layers;
    const Program program = Sound(job).roles.front();
    return WorkingSetBefore(program, Phase::backward, R"(free "unsharded head.norm")");
  };
  // At the head's backward no layer is there but those kept and the one gathered ahead.
  EXPECT_EQ(held(0) - 2 * kLayer, held(2) - 2 * 2 * kLayer);
  EXPECT_EQ(held(3) - held(2), 2 * kLayer);
}

TEST(Fsdp2Settings, ALossOverAllTokensIsSummedInsteadOfAveraged) {
  Job job = OracleJob("fsdp2-scatter-each", 4);
  const Program average = Sound(job).roles.front();
  job.axes.loss_scale = LossScale::global_tokens;
  const Program sum = Sound(job).roles.front();
  ASSERT_EQ(average.nodes.size(), sum.nodes.size());
  // Apart from the reduction the loss's factor differs: 1/M becomes 1/(M N).
  for (std::size_t i = 0; i < sum.nodes.size(); ++i) {
    if (Print(average, average.nodes[i]) != Print(sum, sum.nodes[i])) {
      const auto* collective = std::get_if<Collective>(&sum.nodes[i]);
      const auto* kernel = std::get_if<Compute>(&sum.nodes[i]);
      ASSERT_TRUE(collective != nullptr || kernel != nullptr);
      if (collective != nullptr) {
        EXPECT_EQ(collective->reduction, Reduction::sum);
        EXPECT_EQ(collective->scale, Rational(1));
      } else {
        EXPECT_EQ(kernel->scale, Rational(1, 16));
      }
    }
  }
}

TEST(Fsdp2Settings, APublished26BModelDefers52GigabytesOfGradients) {
  // Published (torchtitan #292): 26 B parameters on 16 GPUs go from 3.25 GB of sharded gradients to about 52 GB.
  Job job = OracleJob("fsdp2-defer", 4);
  Table table;
  table.rows = {{"embedding", 1, 1'000'000'000, 0, 0, 1, 2, 0, 0},
                {"layer", 48, 500'000'000, 0, 0, 1, 2, 0, 0},
                {"head", 1, 1'000'000'000, 0, 0, 1, 2, 0, 0}};
  job.network = {"26b", table, {}};
  job.layout.dp = 16;
  job.axes.precision = {};  // bf16 throughout
  const StepProgram defer = Sound(job);
  const Ledger deferred = Audit(defer, job.machine);
  EXPECT_EQ(deferred.between_microbatches.at(2)[Category::gradient].count(), 52'000'000'000);
  const Job each = Changed(job, [](Axes& axes) { axes.sync.when = Sync::When::every; });
  const StepProgram scattered = Sound(each);
  EXPECT_EQ(Audit(scattered, job.machine).between_microbatches.at(2)[Category::gradient].count(), 3'250'000'000);
}

Job CustomJob(const std::string& strategy, std::int64_t microbatches, const std::string& synchronises,
              const std::string& steps) {
  Job job = OracleJob(strategy, microbatches);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = synchronises;
  job.axes.sync.step_expression = steps;
  return job;
}

TEST(Fsdp2Settings, CustomWindowsLeaveNothingBehind) {
  for (const char* strategy : {"fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-after-backward", "fsdp2-keep-all"}) {
    for (const char* expression : {"(i + 1) % 3 == 0", "i % 3 == 0", "i == 4"}) {
      const Job job = CustomJob(strategy, 8, expression, "");
      const Result<StepProgram> step = Lower(job, StepKind::steady);
      ASSERT_TRUE(step.ok()) << step.error().Text();
      for (const Finding& finding : Verify(*step)) {
        EXPECT_TRUE(IsWrongResult(finding.rule)) << strategy << " " << expression << ": " << finding.message;
      }
      const Ledger ledger = Audit(*step, job.machine);
      EXPECT_EQ(ledger.live, ledger.between_microbatches.at(0)) << strategy << " " << expression;
    }
  }
}

TEST(Fsdp2Settings, SynchronisingTwiceInAWindowKeepsShardedAndUnshardedGradients) {
  const Job job = CustomJob("fsdp2-keep-all", 6, "i == 1 or i == 5", "i == 5");
  const Ledger ledger = Audit(Sound(job), job.machine);
  // In microbatch 3 the first two are sharded (4 P / N) and the third is whole (4 P).
  EXPECT_EQ(ledger.between_microbatches.at(3)[Category::gradient].count(), 110'633'984);
  EXPECT_EQ(ledger.between_microbatches.at(3)[Category::accumulator].count(), 442'535'936);
}

TEST(Fsdp2Settings, AStepThatWouldLeaveGradientsOutIsRefused) {
  const Result<StepProgram> step = Lower(CustomJob("fsdp2-defer", 4, "i == 1", "i == 3"), StepKind::steady);
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().where, "sync.step_expression");
  EXPECT_NE(step.error().message.find("what was not reduce-scattered would be left out"), std::string::npos);
}

// zero_grad(set_to_none=False): P/4 gradients in fp32 are there from the first step's end on. Everything is then as in
// a second microbatch: so PyTorch 2.15 was seen to allocate under torchtitan b5bcd76c, to the byte.
TEST(Fsdp2Settings, GradientsThatAreZeroedInPlaceStay) {
  const auto in_place = [](Job job) {
    job.axes.buffers.set_to_none = false;
    return job;
  };
  const auto highest = [](const Job& job, StepKind step) {
    return Audit(*Lower(job, step), job.machine).highest_system;
  };
  for (const char* strategy : {"fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-all"}) {
    const Job one = OracleJob(strategy, 1);
    EXPECT_EQ(Audit(Sound(one), one.machine).after_optimizer[Category::gradient].count(), 0) << strategy;
    EXPECT_EQ(Audit(Sound(in_place(one)), one.machine).after_optimizer[Category::gradient].count(), 110'633'984);
    EXPECT_EQ(highest(in_place(one), StepKind::first), highest(one, StepKind::first)) << strategy;
  }
  const Job each = OracleJob("fsdp2-scatter-each", 1);
  EXPECT_EQ(highest(in_place(each), StepKind::steady), highest(OracleJob("fsdp2-scatter-each", 2), StepKind::steady));
  EXPECT_GT(highest(in_place(each), StepKind::steady), highest(each, StepKind::steady));
  Job early = in_place(OracleJob("fsdp2-scatter-each", 1));
  early.axes.optimizer_step.in_backward = true;
  const Result<StepProgram> refused = Lower(early, StepKind::steady);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().where, "buffers.set_to_none");
}

TEST(Fsdp2Settings, AShortLastWindowIsDroppedOrRescaled) {
  using Policy = LastWindow::Policy;
  for (const char* strategy : {"fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-after-backward", "fsdp2-keep-all"}) {
    for (const Policy policy : {Policy::drop, Policy::rescaled}) {
      for (const std::int64_t microbatches : {1, 2, 3}) {
        Job job = OracleJob(strategy, 4);
        job.last_window = {policy, microbatches};
        const StepProgram step = Sound(job);
        const Ledger ledger = Audit(step, job.machine);
        EXPECT_EQ(ledger.live, ledger.between_microbatches.at(0)) << strategy << microbatches;
        EXPECT_EQ(ledger.after_optimizer.Total().count() > 0, policy == Policy::rescaled);
      }
    }
  }
}

TEST(Fsdp2Settings, NothingIsExceptedFromAReshardingThatDoesNotHappen) {
  const Job job = Changed(OracleJob("fsdp2-keep-all", 2), [](Axes& axes) { axes.shard.gathered_layers = 1; });
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().where, "shard.reshard_after_forward");
}

/// A random setting of all that fully_shard looks at.
Job RandomJob(Dice& dice) {
  constexpr const char* kNames[] = {"fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-after-backward", "fsdp2-keep-all",
                                    "hsdp"};
  const std::string name = kNames[dice.Roll(5)];
  Job job = OracleJob(name, dice.Number(1, 5));
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = dice.Number(1, 15);
  decoder.tied_embeddings = dice.OneIn(3);
  job.axes.shard.replicas = name == "hsdp" ? dice.Number(2, 3) : dice.OneIn(4) ? 2 : 1;
  job.layout.dp = job.axes.shard.replicas * dice.Number(1, 4);
  job.axes.shard.prefetch_forward = dice.Number(0, 3);
  job.axes.shard.prefetch_backward = dice.Number(0, 3);
  if (job.axes.shard.reshard_after_forward) {
    job.axes.shard.reshard_last_unit = dice.OneIn(3);
    job.axes.shard.gathered_layers = dice.OneIn(2) ? dice.Number(0, 5) : 0;
  }
  job.axes.loss_scale = dice.OneIn(3) ? LossScale::global_tokens : LossScale::microbatches;
  Precision& precision = job.axes.precision;
  if (dice.OneIn(3)) {
    precision.master.reset();
  }
  const DType dtypes[] = {DType::fp32, DType::bf16, DType::fp16};
  precision.params = precision.gradients = dtypes[dice.Roll(3)];
  precision.reduce = precision.accumulate = dtypes[dice.Roll(3)];
  if (dice.OneIn(4)) {
    job.network.trainable = {"layer.w*"};
  }
  job.axes.buffers.set_to_none = !dice.OneIn(3);
  job.axes.buffers.wide_chunk_sum = !dice.OneIn(3);
  if (dice.OneIn(3)) {
    job.axes.loss = Partition::Loss::chunked;
    job.axes.loss_chunk_tokens = dice.OneIn(3) ? 4096 : 0;
  }
  if (dice.OneIn(4)) {
    job.last_window = {dice.OneIn(2) ? LastWindow::Policy::drop : LastWindow::Policy::rescaled, 1};
  }
  job.optimizer = dice.OneIn(3) ? OptimizerKind::sgd : OptimizerKind::adamw;
  return job;
}

TEST(Fsdp2Settings, EverySettingIsSoundAndBothEnginesAgreeOnIt) {
  Dice dice(20260729);
  for (int i = 0; i < Rounds(400); ++i) {
    const Job job = RandomJob(dice);
    // A first step without an optimizer step has no moments to keep.
    const bool steps = job.last_window.microbatches == 0 || job.last_window.policy != LastWindow::Policy::drop;
    const Result<StepProgram> step = Lower(job, steps ? static_cast<StepKind>(i % 3) : StepKind::steady);
    ASSERT_TRUE(step.ok()) << step.error().Text();
    const std::vector<Finding> findings = Verify(*step);
    ASSERT_TRUE(findings.empty()) << i << " " << job.strategy << ": " << findings.front().message;
    const std::vector<Costs> costs = PriceAll(*step, job.machine);
    ASSERT_EQ(Simulate(*step, costs), EvaluateClosedForm(*step, costs)) << i << " " << job.strategy;
  }
}

}  // namespace
}  // namespace tidemark::strategy_fsdp2_settings_test
