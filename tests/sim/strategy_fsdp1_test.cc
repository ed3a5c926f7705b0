// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

// Expected bytes are printed by docs/fsdp1_oracle.py, which lists the allocations one by one in the order that
// docs/fsdp1.md describes: 110,633,984 parameters (root 65,537,024, layers 11,274,240), bf16 for compute, fp32 shards
// and reduction, Adam, N = 4, M = 4 where not said otherwise.

namespace tidemark::strategy_fsdp1_test {
namespace {

constexpr std::int64_t kElements = 110'633'984;

Job ShardGradOp(const char* strategy, std::int64_t microbatches) {
  Job job = OracleJob(strategy, microbatches);
  job.axes.shard.reshard_after_forward = false;
  return job;
}

Job Hybrid(const char* strategy, std::int64_t microbatches) {
  Job job = OracleJob(strategy, microbatches);
  job.axes.shard.replicas = 2;
  return job;
}

Job WithLayers(Job job, std::int64_t layers) {
  std::get<Decoder>(job.network.shape).layers = layers;
  return job;
}

std::int64_t Peak(const Job& job) { return BookOf(job).highest_system.count(); }

struct Traffic {
  std::int64_t gathered = 0, scattered = 0, reduced = 0, wire = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

Traffic TrafficOf(const Job& job) {
  Traffic traffic;
  for (const CommunicationRow& row : CountCommunication(Sound(job).roles.front())) {
    std::int64_t& payload = row.kind == "all_gather"       ? traffic.gathered
                            : row.kind == "reduce_scatter" ? traffic.scattered
                                                           : traffic.reduced;
    EXPECT_EQ(row.group, row.kind == "all_reduce" ? "replicas" : "dp");
    payload += row.payload.count();
    traffic.wire += row.wire.count();
  }
  return traffic;
}

std::ostream& operator<<(std::ostream& out, const Traffic& traffic) {
  return out << traffic.gathered << " " << traffic.scattered << " " << traffic.reduced << " " << traffic.wire;
}

/// Per microbatch: gathers in forward, gathers in backward, scatters.
std::vector<std::array<std::int64_t, 3>> Calls(const Job& job) {
  std::vector<std::array<std::int64_t, 3>> calls;
  bool backward = false;
  for (const Node& node : Unroll(Sound(job).roles.front()).nodes) {
    if (const auto* begin = std::get_if<Begin>(&node)) {
      backward = begin->phase == Phase::backward || begin->phase == Phase::reduce;
      if (begin->phase == Phase::forward) {
        calls.emplace_back();
      }
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      const bool gathers = collective->kind == CollectiveKind::all_gather;
      ++calls.back()[!gathers ? 2 : backward ? 1 : 0];
    }
  }
  return calls;
}

std::int64_t Gradients(const CategoryBytes& live) {
  return (live[Category::gradient] + live[Category::accumulator]).count();
}

TEST(Fsdp1, FullShardPeaksWhereTheRootIsScattered) {
  EXPECT_EQ(Peak(OracleJob("fsdp1", 1)), 835'758'080);
  EXPECT_EQ(Peak(OracleJob("fsdp1", 4)), 901'295'104);
}

TEST(Fsdp1, NoSyncAddsWholeGradientsInTheDtypeOfTheParameters) {
  EXPECT_EQ(Peak(OracleJob("fsdp1-no-sync", 4)), 946'392'064);
  EXPECT_EQ(Peak(OracleJob("fsdp1-no-sync", 1)), 835'758'080);
}

TEST(Fsdp1, ShardGradOpInNoSyncKeepsParametersUntilTheLastMicrobatch) {
  EXPECT_EQ(Peak(ShardGradOp("fsdp1", 4)), 901'295'104);
  EXPECT_EQ(Peak(ShardGradOp("fsdp1-no-sync", 4)), 1'036'585'984);
}

TEST(Fsdp1, ManyLayersFoldIntoALoopWithoutChangingAnything) {
  EXPECT_EQ(Peak(WithLayers(OracleJob("fsdp1-no-sync", 4), 12)), 1'397'361'664);
  EXPECT_EQ(Peak(WithLayers(ShardGradOp("fsdp1-no-sync", 4), 12)), 1'667'943'424);
  EXPECT_EQ(TrafficOf(WithLayers(OracleJob("fsdp1-no-sync", 4), 12)),
            (Traffic{2'688'950'272, 803'311'616, 0, 2'619'196'416}));
}

TEST(Fsdp1, EveryWindowEndsWithShardsMomentsAndShardedGradients) {
  for (const Job& job : {OracleJob("fsdp1", 4), OracleJob("fsdp1-no-sync", 4), ShardGradOp("fsdp1-no-sync", 4)}) {
    const Ledger ledger = BookOf(job);
    EXPECT_EQ(SystemBytes(ledger.at_window_end).count(), 442'535'936);
    EXPECT_EQ(ledger.at_window_end[Category::parameter].count(), kElements * 4 / 4);
    EXPECT_EQ(ledger.at_window_end[Category::optimizer].count(), kElements * 8 / 4);
    EXPECT_EQ(ledger.live, ledger.between_microbatches.at(0));
  }
}

TEST(Fsdp1, PayloadsAndWireBytesOfAStep) {
  EXPECT_EQ(TrafficOf(OracleJob("fsdp1", 4)), (Traffic{1'245'847'552, 1'770'143'744, 0, 2'261'993'472}));
  EXPECT_EQ(TrafficOf(OracleJob("fsdp1-no-sync", 4)), (Traffic{1'245'847'552, 442'535'936, 0, 1'266'287'616}));
  EXPECT_EQ(TrafficOf(ShardGradOp("fsdp1", 4)), (Traffic{885'071'872, 1'770'143'744, 0, 1'991'411'712}));
  EXPECT_EQ(TrafficOf(ShardGradOp("fsdp1-no-sync", 4)), (Traffic{221'267'968, 442'535'936, 0, 497'852'928}));
}

TEST(Fsdp1, BetweenMicrobatchesGradientsAreShardedOrWhole) {
  const CategoryBytes each = BookOf(OracleJob("fsdp1", 4)).between_microbatches.at(2);
  EXPECT_EQ(Gradients(each), kElements * 4 / 4);
  EXPECT_EQ(SystemBytes(each).count(), 442'535'936);
  const CategoryBytes whole = BookOf(OracleJob("fsdp1-no-sync", 4)).between_microbatches.at(2);
  EXPECT_EQ(Gradients(whole), kElements * 2);
  EXPECT_EQ(SystemBytes(whole).count(), 553'169'920);
  const CategoryBytes kept = BookOf(ShardGradOp("fsdp1-no-sync", 4)).between_microbatches.at(2);
  EXPECT_EQ(kept[Category::parameter].count(), kElements * 4 / 4 + kElements * 2);
  EXPECT_EQ(SystemBytes(kept).count(), 774'437'888);
}

// What PyTorch 1.13's FSDP did, two blocks and a root unit in fp32, M = 3, with 2 and with 4 processes: gathers in
// forward and backward, scatters, gradient bytes between microbatches, whole parameters left behind a backward pass.
struct Measured {
  bool reshards;
  const char* strategy;
  std::vector<std::array<std::int64_t, 3>> calls;
  bool whole_gradients, keeps_parameters;
};

TEST(Fsdp1, GathersScattersAndKeepsWhatPyTorchWasSeenToDo) {
  const Measured rows[] = {
      {true, "fsdp1", {{3, 2, 3}, {3, 2, 3}, {3, 2, 3}}, false, false},
      {true, "fsdp1-no-sync", {{3, 2, 0}, {3, 2, 0}, {3, 2, 3}}, true, false},
      {false, "fsdp1", {{3, 0, 3}, {3, 0, 3}, {3, 0, 3}}, false, false},
      {false, "fsdp1-no-sync", {{3, 0, 0}, {0, 0, 0}, {0, 0, 3}}, true, true},
  };
  for (const Measured& row : rows) {
    for (const std::int64_t ranks : {2, 4}) {
      Job job = WithLayers(OracleJob(row.strategy, 3), 2);
      job.layout.dp = ranks;
      job.axes.shard.reshard_after_forward = row.reshards;
      Precision& precision = job.axes.precision;
      precision.params = precision.gradients = precision.accumulate = DType::fp32;
      EXPECT_EQ(Calls(job), row.calls) << row.strategy << " reshards " << row.reshards;
      const std::int64_t bytes = 4 * (65'537'024 + 2 * 11'274'240);
      const Ledger ledger = BookOf(job);
      for (const std::size_t microbatch : {0, 1}) {
        const CategoryBytes& behind = ledger.between_microbatches.at(microbatch + 1);
        EXPECT_EQ(Gradients(behind), row.whole_gradients ? bytes : bytes / ranks);
        EXPECT_EQ(behind[Category::parameter].count(), bytes / ranks + (row.keeps_parameters ? bytes : 0));
      }
      EXPECT_EQ(Gradients(ledger.at_window_end), bytes / ranks);
      EXPECT_EQ(ledger.at_window_end[Category::parameter].count(), bytes / ranks);
    }
  }
}

TEST(Fsdp1, HybridShardingReducesEveryShardOverTheReplicas) {
  EXPECT_EQ(TrafficOf(Hybrid("fsdp1", 4)), (Traffic{1'245'847'552, 1'770'143'744, 885'071'872, 2'393'067'520}));
  EXPECT_EQ(TrafficOf(Hybrid("fsdp1-no-sync", 4)), (Traffic{1'245'847'552, 442'535'936, 221'267'968, 1'065'459'712}));
  EXPECT_EQ(Peak(Hybrid("fsdp1", 4)), 1'409'368'064);
  EXPECT_EQ(Peak(Hybrid("fsdp1-no-sync", 4)), 1'278'294'016);
  EXPECT_EQ(SystemBytes(BookOf(Hybrid("fsdp1", 4)).at_window_end).count(), 885'071'872);
}

TEST(Fsdp1, AFlatParameterIsPaddedOnceAndItsGradientCopiedForIt) {
  Job job = OracleJob("fsdp1", 4);
  job.layout.dp = 3;
  // The root's 65,537,024 is one short of a multiple of 3, a layer's 11,274,240 is one.
  EXPECT_EQ(TrafficOf(job), (Traffic{1'245'847'560, 1'770'143'760, 0, 2'010'660'880}));
  const Ledger ledger = BookOf(job);
  EXPECT_EQ(ledger.highest_system.count(), 1'332'800'864);
  EXPECT_EQ(SystemBytes(ledger.at_window_end).count(), 590'047'920);
}

/// The factors by which gradients are multiplied on either side of the first reduce-scatter.
std::vector<Rational> Factors(std::int64_t ranks, std::int64_t replicas = 1) {
  Job job = OracleJob("fsdp1", 1);
  job.layout.dp = ranks;
  job.axes.shard.replicas = replicas;
  std::vector<Rational> factors;
  std::int64_t scatters = 0;
  for (const Node& node : Unroll(Sound(job).roles.front()).nodes) {
    if (const auto* collective = std::get_if<Collective>(&node)) {
      scatters += collective->kind == CollectiveKind::reduce_scatter ? 1 : 0;
      EXPECT_EQ(collective->scale, Rational(1));
      EXPECT_NE(collective->reduction, Reduction::avg);
    } else if (const auto* scale = std::get_if<Scale>(&node); scale != nullptr && factors.size() < 2 && scatters < 2) {
      factors.push_back(scale->factor);
    }
  }
  return factors;
}

TEST(Fsdp1, HalfOfTheRanksIsDividedByBeforeTheSumAndTheRestBehindIt) {
  // _get_gradient_predivide_factor: the smallest power of two f, of those that divide N, with f * f >= N; where the
  // next one does not divide N any more, that one.
  EXPECT_EQ(Factors(4), (std::vector<Rational>{Rational(1, 2), Rational(1, 2)}));
  EXPECT_EQ(Factors(3), (std::vector<Rational>{Rational(1, 2), Rational(2, 3)}));
  EXPECT_EQ(Factors(8), (std::vector<Rational>{Rational(1, 4), Rational(1, 2)}));
  EXPECT_EQ(Factors(6), (std::vector<Rational>{Rational(1, 4), Rational(2, 3)}));
  EXPECT_EQ(Factors(8, 2), Factors(8));
  EXPECT_EQ(Factors(2).front(), Rational(1, 2));
}

TEST(Fsdp1, WithOneRankNothingIsShardedAndEveryUseCastsAnew) {
  for (const char* strategy : {"fsdp1", "fsdp1-no-sync"}) {
    Job job = OracleJob(strategy, 4);
    job.layout.dp = 1;
    EXPECT_EQ(TrafficOf(job), Traffic{});
    const Ledger ledger = BookOf(job);
    EXPECT_EQ(SystemBytes(ledger.at_window_end).count(), kElements * (4 + 8 + 4));
    const bool whole = job.axes.sync.when == Sync::When::last;
    EXPECT_EQ(Gradients(ledger.between_microbatches.at(2)), kElements * (whole ? 2 : 4));
    job.axes.precision = Precision();  // all bf16: the shard itself is what kernels read
    EXPECT_EQ(BookOf(job).at_window_end[Category::parameter].count(), kElements * 2);
    EXPECT_EQ(Gradients(BookOf(job).at_window_end), kElements * 2);
  }
}

TEST(Fsdp1, WithoutMixedPrecisionNothingIsCast) {
  Job job = OracleJob("fsdp1", 2);
  job.axes.precision = Precision();
  const Program program = Sound(job).roles.front();
  for (const Node& node : program.nodes) {
    const auto* compute = std::get_if<Compute>(&node);
    EXPECT_FALSE(compute != nullptr && program.names[compute->name.index].starts_with("cast "));
  }
}

TEST(Fsdp1, NarrowingForTheWireCastsTheShardBack) {
  Job job = OracleJob("fsdp1", 3);
  job.axes.precision.reduce = DType::bf16;
  EXPECT_EQ(TrafficOf(job).scattered, 3 * kElements * 2);
  EXPECT_EQ(Gradients(BookOf(job).at_window_end), kElements * 4 / 4);
  job.axes.shard.replicas = 2;
  EXPECT_EQ(Gradients(BookOf(job).at_window_end), kElements * 4 / 2);
}

std::vector<std::string> EventsOf(const Program& program, const std::vector<std::string>& wanted) {
  std::vector<std::string> events;
  for (const Node& node : program.nodes) {
    const std::string line = Print(program, node);
    if (std::find(wanted.begin(), wanted.end(), line) != wanted.end()) {
      events.push_back(line);
    }
  }
  return events;
}

TEST(Fsdp1, AMiddleLayersEventsComeInTheirOrder) {
  const Program program = Unroll(Sound(OracleJob("fsdp1", 1)).roles.front());
  const std::vector<std::string> layer = {R"(alloc "cast shard of layer"[1])",
                                          R"(alloc "unsharded layer"[1])",
                                          R"(free "cast shard of layer"[1] recorded)",
                                          R"(free "unsharded layer"[1] recorded)",  // behind its forward
                                          R"(alloc "cast shard of layer"[1])",
                                          R"(alloc "unsharded layer"[1])",  // ahead of the backward of layer 2
                                          R"(free "cast shard of layer"[1] recorded)",
                                          R"(alloc "gradient of layer.wo"[2])",
                                          R"(alloc "flat gradient of layer"[2])",  // all of layer 2's gradients in one
                                          R"(free "gradient of layer.wo"[2] recorded)",
                                          R"(alloc "cast gradient of layer"[2])",
                                          R"(alloc "sharded gradient of layer"[2])",
                                          R"(free "cast gradient of layer"[2])",
                                          R"(free "flat gradient of layer"[2] recorded)",
                                          R"(alloc "unsharded layer"[0])",  // the next one ahead
                                          R"(alloc "gradient of layer.wo"[1])",
                                          R"(free "unsharded layer"[1] recorded)"};
  std::vector<std::string> wanted = layer;
  std::vector<std::string> events = EventsOf(program, wanted);
  // Layer 0's forward gather comes first, layer 1's own scatter last: neither belongs to the story.
  events.erase(events.begin());
  EXPECT_EQ(events, layer);
}

/// Whether the first gather of layer 1 in the backward pass comes before `line`.
bool GathersBefore(Shard::BackwardPrefetch prefetch, const char* line) {
  Job job = OracleJob("fsdp1", 1);
  job.axes.shard.backward_prefetch = prefetch;
  const std::vector<std::string> events =
      EventsOf(Unroll(Sound(job).roles.front()), {R"(alloc "unsharded layer"[1])", line});
  const auto found = std::find(events.begin(), events.end(), line);
  return std::count(events.begin(), found, R"(alloc "unsharded layer"[1])") == 2;
}

TEST(Fsdp1, PrefetchDecidesWhenTheNextLayerIsGatheredInBackward) {
  using enum Shard::BackwardPrefetch;
  const char* const gradients = R"(alloc "gradient of layer.wo"[2])";
  const char* const scatter = R"(alloc "sharded gradient of layer"[2])";
  EXPECT_TRUE(GathersBefore(pre, gradients));
  EXPECT_FALSE(GathersBefore(post, gradients));
  EXPECT_TRUE(GathersBefore(post, scatter));
  EXPECT_FALSE(GathersBefore(none, scatter));
}

std::int64_t HostWaits(const Job& job, StepKind kind) {
  const Program program = Unroll(Sound(job, kind).roles.front());
  return std::count_if(program.nodes.begin(), program.nodes.end(),
                       [](const Node& node) { return std::holds_alternative<HostSync>(node); });
}

TEST(Fsdp1, TheLimiterTakesOneEventAnUnshardOnceTwoWait) {
  // A microbatch frees 4 layers in forward, 4 and the root in backward: 9 events in, 9 out when it has settled. In a
  // first step the queue begins empty; with 4 events left behind every microbatch that makes 4 fewer waits.
  EXPECT_EQ(HostWaits(OracleJob("fsdp1", 1), StepKind::steady), 9);
  EXPECT_EQ(HostWaits(OracleJob("fsdp1", 1), StepKind::first), 9 - 4);
  EXPECT_EQ(HostWaits(OracleJob("fsdp1", 5), StepKind::steady), 5 * 9);
  // SHARD_GRAD_OP frees 5, and in no_sync only in the last microbatch.
  EXPECT_EQ(HostWaits(ShardGradOp("fsdp1", 3), StepKind::steady), 3 * 5);
  EXPECT_EQ(HostWaits(ShardGradOp("fsdp1-no-sync", 3), StepKind::steady), 5);
  for (const Shard::BackwardPrefetch prefetch : {Shard::BackwardPrefetch::none, Shard::BackwardPrefetch::post}) {
    Job job = OracleJob("fsdp1", 2);
    job.axes.shard.backward_prefetch = prefetch;
    EXPECT_EQ(HostWaits(job, StepKind::steady), 2 * 9);
  }
  Job free = OracleJob("fsdp1", 2);
  free.axes.shard.limit_all_gathers = false;
  EXPECT_EQ(HostWaits(free, StepKind::steady), 0);
}

TEST(Fsdp1, MomentsAppearWithTheFirstUpdateBesideAllGradients) {
  const Ledger ledger = BookOf(OracleJob("fsdp1", 2), StepKind::first);
  EXPECT_EQ(ledger.at_window_end[Category::optimizer].count(), 0);
  EXPECT_EQ(ledger.highest_in_optimizer.count(), 442'535'936);
}

TEST(Fsdp1, ATiedHeadIsOnceInTheRootsFlatParameter) {
  Job job = OracleJob("fsdp1", 2);
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  EXPECT_EQ(BookOf(job).at_window_end[Category::parameter].count(), kElements - 32'768'000);
}

TEST(Fsdp1, FrozenUnitsAreGatheredAndNeverScattered) {
  Job job = OracleJob("fsdp1", 2);
  job.network.trainable = {"layer.*"};
  EXPECT_EQ(Calls(job), (std::vector<std::array<std::int64_t, 3>>{{5, 4, 4}, {5, 4, 4}}));
  job.network.trainable = {"embedding.*", "head.*"};
  EXPECT_EQ(Calls(job), (std::vector<std::array<std::int64_t, 3>>{{5, 4, 1}, {5, 4, 1}}));
}

TEST(Fsdp1, MicrobatchesMaySynchroniseInAnyOrder) {
  // In no_sync behind a synchronised microbatch the sharded gradient stays beside the whole one.
  Job job = OracleJob("fsdp1", 6);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "i % 2 == 1";
  job.axes.sync.step_expression = "i == steps - 1";
  const Ledger ledger = BookOf(job);
  EXPECT_EQ(Gradients(ledger.between_microbatches.at(1)), kElements * 2);
  EXPECT_EQ(Gradients(ledger.between_microbatches.at(2)), kElements * 4 / 4);
  EXPECT_EQ(Gradients(ledger.between_microbatches.at(3)), kElements * 2 + kElements * 4 / 4);
}

TEST(Fsdp1, TheProgramDoesNotGrowWithLayersOrMicrobatches) {
  const auto nodes = [](const char* strategy, std::int64_t layers, std::int64_t microbatches) {
    const Result<StepProgram> step = Lower(WithLayers(OracleJob(strategy, microbatches), layers), StepKind::steady);
    EXPECT_TRUE(step.ok());
    return step->roles.front().nodes.size();
  };
  EXPECT_EQ(nodes("fsdp1", 126, 256), nodes("fsdp1", 8, 8));
  EXPECT_EQ(nodes("fsdp1-no-sync", 126, 256), nodes("fsdp1-no-sync", 8, 8));
}

}  // namespace
}  // namespace tidemark::strategy_fsdp1_test
