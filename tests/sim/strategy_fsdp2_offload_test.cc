// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/predict/lints.h"
#include "sim/strategies/gradient_clip.h"
#include "tests/base/sanitizer.h"
#include "tests/sim/deepspeed_job.h"
#include "tests/sim/offloaded_job.h"

// FSDP2's CPUOffloadPolicy. Numbers are for the oracle model with N = 4: P = 110,633,984 parameters, in bf16 for
// compute and in fp32 for all else, of which a rank has P/4 = 27,658,496; its largest are the embedding and the head
// with 32,768,000 each. The test machine's link to the host moves 50 bytes/ns behind 5 us, and its host 400 bytes/ns,
// which the node's 4 ranks share.

namespace tidemark::strategy_fsdp2_offload_test {
namespace {

using deepspeed::ExpectEnginesAgree;
using deepspeed::kHead;
using deepspeed::kPart;
using deepspeed::LedgerOf;
using deepspeed::Refusal;

const std::vector<std::string> kStrategies = {"fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-after-backward",
                                              "fsdp2-keep-all"};

Job Replicated(std::int64_t microbatches) {
  Job job = Offloaded("hsdp", microbatches);
  job.axes.shard.replicas = 2;
  return job;
}

MemoryPeak PeakOf(const Job& job, StepKind kind = StepKind::steady) {
  return FoldMemory(Sound(job, kind).roles.front());
}

struct Summed {
  std::int64_t count = 0, bytes = 0;
  Nanos time;
};

/// All leaves of this name: how many, what copies of them move, and how long they take.
Summed SumOf(const Job& job, const std::string& name, StepKind kind = StepKind::steady) {
  Summed sum;
  StepProgram step = Sound(job, kind);
  step.roles.front() = Unroll(step.roles.front());
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  const Program& program = step.roles.front();
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    std::visit(
        [&](const auto& leaf) {
          if constexpr (requires { leaf.name; }) {
            if (program.names[leaf.name.index] == name) {
              ++sum.count;
              sum.time += costs.front().device[i];
              if constexpr (requires { leaf.bytes; }) {
                sum.bytes += leaf.bytes.count();
              }
            }
          }
        },
        program.nodes[i]);
  }
  return sum;
}

/// How often the host waits for a stream of this name.
std::int64_t WaitsFor(const Job& job, const std::string& stream) {
  std::int64_t waits = 0;
  const Program program = Unroll(Sound(job).roles.front());
  for (const Node& node : program.nodes) {
    const auto* sync = std::get_if<HostSync>(&node);
    waits += sync != nullptr && sync->stream.valid() && program.streams[sync->stream.index].name == stream ? 1 : 0;
  }
  return waits;
}

// Shards, moments and gradients in fp32 are 16 bytes of each of this rank's parameters. Where a microbatch adds to
// gradients that are there, a parameter's new one lies beside them.
TEST(Fsdp2Offload, TheHostHoldsShardsMomentsAndGradients) {
  for (const std::string& strategy : kStrategies) {
    EXPECT_EQ(PeakOf(Offloaded(strategy, 1)).host.count(), 16 * kPart) << strategy;
    EXPECT_EQ(PeakOf(Offloaded(strategy, 1), StepKind::first).host.count(), 16 * kPart) << strategy;
    EXPECT_EQ(PeakOf(OracleJob(strategy, 4)).host.count(), 0) << strategy;
  }
  EXPECT_EQ(PeakOf(Offloaded("fsdp2-scatter-each", 4)).host.count(), 16 * kPart + kHead);
  EXPECT_EQ(PeakOf(Offloaded("fsdp2-defer", 4)).host.count(), 16 * kPart);
}

TEST(Fsdp2Offload, NothingStaysOnTheDeviceFromStepToStep) {
  for (const std::string& strategy : kStrategies) {
    const StepProgram step = Sound(Offloaded(strategy, 4));
    for (const Buffer& buffer : step.roles.front().buffers) {
      EXPECT_FALSE(buffer.place == Place::device && (buffer.resident || buffer.kept)) << buffer.name;
    }
  }
}

// Reduced gradients leave the device at once; what was accumulated before stays where it was. The ledger counts both
// memories: shards and moments are 12 bytes of each of this rank's parameters, sharded gradients 4.
TEST(Fsdp2Offload, BetweenMicrobatchesTheDeviceHasWhatIsNotReduced) {
  EXPECT_EQ(SystemBytes(LedgerOf(Offloaded("fsdp2-scatter-each", 4)).between_microbatches.at(2)).count(), 16 * kPart);
  const CategoryBytes deferred = LedgerOf(Offloaded("fsdp2-defer", 4)).between_microbatches.at(2);
  EXPECT_EQ(deferred[Category::accumulator].count(), 4 * 4 * kPart);
  EXPECT_EQ(SystemBytes(deferred).count(), 12 * kPart + 4 * 4 * kPart);
  const CategoryBytes kept = LedgerOf(Offloaded("fsdp2-keep-all", 4)).between_microbatches.at(2);
  EXPECT_EQ(kept[Category::parameter].count(), 4 * kPart + 2 * 4 * kPart);
}

// Each gather is preceded by a copy of this rank's shards in fp32: of all units in the forward pass, of all but the
// last, which is not resharded, in the backward pass. Norm and head have 1,024 and 32,768,000 parameters.
TEST(Fsdp2Offload, ShardsComeForEachGather) {
  const std::int64_t last_unit = kHead + 1024;
  const std::int64_t a_microbatch = 4 * (2 * kPart - last_unit / 4);
  EXPECT_EQ(SumOf(Offloaded("fsdp2-scatter-each", 1), "shard to device").bytes, a_microbatch);
  EXPECT_EQ(SumOf(Offloaded("fsdp2-scatter-each", 4), "shard to device").bytes, 4 * a_microbatch);
  EXPECT_EQ(SumOf(Offloaded("fsdp2-defer", 4), "shard to device").bytes, 4 * a_microbatch);
  EXPECT_EQ(SumOf(Offloaded("fsdp2-keep-after-backward", 4), "shard to device").bytes,
            4 * kPart + 4 * 4 * (kPart - last_unit / 4));
  EXPECT_EQ(SumOf(Offloaded("fsdp2-keep-all", 4), "shard to device").bytes, 4 * kPart);
}

// One copy for each of 4 layers' 8 parameters, the embedding, the last norm and the head, each behind 5 us.
TEST(Fsdp2Offload, EachParameterIsACopyOfItsOwn) {
  const Summed copies = SumOf(Offloaded("fsdp2-keep-all", 1), "shard to device");
  EXPECT_EQ(copies.count, 4 * 8 + 3);
  EXPECT_NEAR(static_cast<double>(copies.time.count()), 35 * 5000 + 4 * kPart / 50.0, 35);  // each is rounded
}

// Gradients go once for each reduction. Those that find others are waited for, one parameter after another, and added
// by the host: 12 bytes an element at 100 bytes/ns.
TEST(Fsdp2Offload, GradientsGoToTheHostBehindEachReduction) {
  EXPECT_EQ(SumOf(Offloaded("fsdp2-scatter-each", 4), "sharded gradient to host").bytes, 4 * 4 * kPart);
  EXPECT_EQ(SumOf(Offloaded("fsdp2-defer", 4), "sharded gradient to host").bytes, 4 * kPart);
  EXPECT_EQ(SumOf(Offloaded("fsdp2-scatter-each", 1), "add sharded gradient").count, 0);
  EXPECT_EQ(SumOf(Offloaded("fsdp2-defer", 4), "add sharded gradient").count, 0);
  const Summed sums = SumOf(Offloaded("fsdp2-scatter-each", 4), "add sharded gradient");
  EXPECT_EQ(sums.count, 3 * 35);
  EXPECT_NEAR(static_cast<double>(sums.time.count()), 3 * 12 * kPart / 100.0, 3 * 35);
}

TEST(Fsdp2Offload, TheHostWaitsForEachGradientThatItAdds) {
  EXPECT_EQ(WaitsFor(Offloaded("fsdp2-scatter-each", 1), "reduce_scatter"), 1);
  EXPECT_EQ(WaitsFor(Offloaded("fsdp2-scatter-each", 4), "reduce_scatter"), 1 + 3 * 35);
  EXPECT_EQ(WaitsFor(Offloaded("fsdp2-defer", 4), "reduce_scatter"), 1);
  EXPECT_EQ(WaitsFor(OracleJob("fsdp2-scatter-each", 4), "reduce_scatter"), 0);
  // Zeroed gradients are there in the first microbatch already.
  Job zeroed = Offloaded("fsdp2-scatter-each", 4);
  zeroed.axes.buffers.set_to_none = false;
  EXPECT_EQ(WaitsFor(zeroed, "reduce_scatter"), 4 * 35);
  EXPECT_EQ(SumOf(zeroed, "zero gradient").count, 35);
}

// Between replicas the sum of microbatches stays on the device until it is all-reduced.
TEST(Fsdp2Offload, ReplicasKeepPartialSumsOnTheDevice) {
  const Job job = Replicated(4);
  EXPECT_EQ(SumOf(job, "sharded gradient to host").bytes, 4 * 2 * kPart);  // of 2 shards
  EXPECT_EQ(SumOf(job, "add sharded gradient").count, 0);
  EXPECT_EQ(WaitsFor(job, "all_reduce"), 1);
  EXPECT_EQ(LedgerOf(job).between_microbatches.at(2)[Category::accumulator].count(), 4 * 2 * kPart);
}

// The host reads and writes shards and moments and reads gradients, 28 bytes an element at 100 bytes/ns.
TEST(Fsdp2Offload, TheHostUpdatesItsShards) {
  const Job job = Offloaded("fsdp2-scatter-each", 1);
  EXPECT_NEAR(static_cast<double>(SumOf(job, "optimizer update").time.count()), 28 * kPart / 100.0, 6);
  const StepProgram step = Sound(job);
  const StepTime time = Simulate(step, PriceAll(step, job.machine)).time;
  EXPECT_EQ(time.optimizer, Nanos(0));
  EXPECT_GT(time.host, Nanos(28 * kPart / 100));
}

// Operation by operation, its temporaries are in host memory too.
TEST(Fsdp2Offload, OtherKernelsRunOnTheHostAsWell) {
  for (const auto kernel : {OptimizerStep::Kernel::foreach_, OptimizerStep::Kernel::for_loop}) {
    Job job = Offloaded("fsdp2-scatter-each", 1);
    job.axes.optimizer_step.kernel = kernel;
    const StepProgram step = Sound(job);
    for (const Node& node : step.roles.front().nodes) {
      const auto* compute = std::get_if<Compute>(&node);
      EXPECT_FALSE(compute != nullptr && compute->work == Work::optimizer && compute->stream.index != 0);
    }
    // Roots of all shards at once; or of the head, 4 * 32,768,000 / 4 bytes, root and quotient, beside the quotient of
    // the norm before it, which has 1,024 numbers.
    const std::int64_t temporaries = kernel == OptimizerStep::Kernel::foreach_ ? 4 * kPart : 2 * kHead + 1024;
    EXPECT_EQ(PeakOf(job).host.count(), 16 * kPart + temporaries);
    ExpectEnginesAgree(job, StepKind::first);
  }
}

TEST(Fsdp2Offload, NormsAreMeasuredAndReducedOnTheHost) {
  Job job = Offloaded("fsdp2-scatter-each", 2);
  job.axes.optimizer_step.clip_norm = 1;
  const Program program = Sound(job).roles.front();
  std::int64_t kernels = 0;
  for (const Node& node : program.nodes) {
    const auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && IsClipKernel(program.names[compute->name.index])) {
      EXPECT_EQ(compute->stream.index, 0U);
      ++kernels;
    }
  }
  EXPECT_GT(kernels, 0);
  EXPECT_EQ(WaitsFor(job, "dp"), 1);  // of gloo's all-reduce
}

TEST(Fsdp2Offload, OneRankBringsOneParameterAfterAnother) {
  Job job = Offloaded("fsdp2-scatter-each", 2);
  job.layout.dp = 1;
  EXPECT_EQ(SumOf(job, "gather parameters").count, 0);
  EXPECT_EQ(SumOf(job, "shard to device").bytes, 2 * 4 * (2 * 4 * kPart - (kHead + 1024)));
  EXPECT_EQ(PeakOf(job).host.count(), 16 * 4 * kPart + 4 * kHead);
}

TEST(Fsdp2Offload, BothEnginesAgreeWhateverElseIsSet) {
  for (const std::string& strategy : kStrategies) {
    for (const std::int64_t microbatches : AllOrLast<std::int64_t>({1, 2, 4})) {
      for (const std::int64_t ranks : {1, 3, 4}) {
        for (const int bits : {0, 1, 2, 4, 7, 8, 9, 16, 32, 64}) {
          Job job = Offloaded(strategy, microbatches);
          job.layout.dp = ranks;
          std::get<Decoder>(job.network.shape).tied_embeddings = (bits & 1) != 0;
          job.axes.optimizer_step.clip_norm = (bits & 2) != 0 ? 1 : 0;
          job.axes.buffers.set_to_none = (bits & 4) == 0;
          if ((bits & 8) != 0) {
            job.axes.precision.params = job.axes.precision.gradients = DType::fp32;
          }
          if ((bits & 16) != 0) {
            job.axes.precision.reduce = job.axes.precision.accumulate = DType::bf16;
          }
          if ((bits & 32) != 0) {
            job.axes.loss = Partition::Loss::chunked;
          }
          if ((bits & 64) != 0) {
            job.network.trainable = {"layer.*"};
          }
          for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
            ExpectEnginesAgree(job, kind);
          }
        }
      }
    }
  }
  for (const std::int64_t microbatches : {1, 3}) {
    ExpectEnginesAgree(Replicated(microbatches), StepKind::first);
    ExpectEnginesAgree(Replicated(microbatches), StepKind::steady);
  }
}

/// "n": so many microbatches are said to find gradients in host memory; "": nothing is said.
std::string SaidToFind(const Job& job) {
  for (const Lint& lint : LintJob(job)) {
    if (lint.id == "host-adds-gradients") {
      const std::string before = fmt::format("of {} microbatches ", job.Microbatches());
      EXPECT_TRUE(lint.message.starts_with(before)) << lint.message;
      return lint.message.substr(before.size(), lint.message.find(" find") - before.size());
    }
  }
  return "";
}

TEST(Fsdp2Offload, ANoteTellsWhereTheHostAdds) {
  EXPECT_EQ(SaidToFind(Offloaded("fsdp2-scatter-each", 4)), "3");
  EXPECT_EQ(SaidToFind(Offloaded("fsdp2-scatter-each", 1)), "");
  EXPECT_EQ(SaidToFind(Offloaded("fsdp2-defer", 4)), "");
  EXPECT_EQ(SaidToFind(OracleJob("fsdp2-scatter-each", 4)), "");
  EXPECT_EQ(SaidToFind(Replicated(4)), "");
  EXPECT_EQ(SaidToFind(Offloaded("deepspeed-zero3", 4)), "");
  Job zeroed = Offloaded("fsdp2-scatter-each", 4);  // finds zeros in the first microbatch
  zeroed.axes.buffers.set_to_none = false;
  EXPECT_EQ(SaidToFind(zeroed), "4");
  zeroed.axes.sync.when = Sync::When::last;
  EXPECT_EQ(SaidToFind(zeroed), "1");
  Job each = Offloaded("fsdp2-scatter-each", 4);
  each.axes.shard.replicas = 2;  // all-reduced behind each scatter
  EXPECT_EQ(SaidToFind(each), "3");
  EXPECT_EQ(SumOf(each, "add sharded gradient").count, 3 * 35);
}

TEST(Fsdp2Offload, StagesReduceBehindTheLastMicrobatch) {
  Job job = Offloaded("fsdp2-keep-all", 4);
  job.layout.pp = 2;
  job.layout.dp = 2;
  ExpectEnginesAgree(job, StepKind::steady);
  EXPECT_EQ(SumOf(job, "sharded gradient to host").count, 17);  // the embedding and two layers
}

TEST(Fsdp2Offload, AStepWithinTheBackwardPassIsNotModelled) {
  Job job = Offloaded("fsdp2-scatter-each", 1);
  job.axes.optimizer_step.in_backward = true;
  EXPECT_EQ(Refusal(job),
            "optimizer_step.in_backward: a step within the backward pass is not modelled for gradients that go to the "
            "host");
}

}  // namespace
}  // namespace tidemark::strategy_fsdp2_offload_test
