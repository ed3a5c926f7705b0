// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulate.h"
#include "sim/predict/predict.h"
#include "sim/predict/trace_recorder.h"
#include "sim/program/text.h"
#include "tests/sim/costs_by_hand.h"
#include "tests/sim/oracle_job.h"

// Memory that another stream uses when it is freed: PyTorch's allocator holds it back until that stream is done
// (record_stream), and takes more from the device meanwhile.

namespace tidemark::late_reuse_test {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// Tensors of 30 MiB, each of which is a segment of its own.
constexpr const char* kHead = R"(role 0 "only", 1 ranks

groups:
  dp  2 ranks, 2 per node

streams:
  host  host
  main  compute
  comm  collective
  side  collective

events:
  e

buffers:
  a[2]  activation  31457280  u8  born on main
  pool  activation  31457280  u8  born on main
  part  activation         8  u8  view of pool

program:
)";

/// Steps with CostsByHand: kernels of 100 ns, collectives of 250.
class Played {
 public:
  Played(const std::string& body, std::int64_t issue_ns) : Played({body}, issue_ns, {}, 1024) {}
  /// A step for each of the bodies, on a device of so many MiB.
  Played(const std::vector<std::string>& bodies, std::int64_t issue_ns, const AllocatorOptions& options,
         std::int64_t device_mib)
      : recorder_(options, Bytes(device_mib * kMiB)) {
    steps_.reserve(bodies.size());
    Nanos start;
    for (const std::string& body : bodies) {
      Result<Program> program = ParseProgram(kHead + body);
      if (!program.ok()) {
        ADD_FAILURE() << program.error().Text();
        return;
      }
      const StepProgram& step = steps_.emplace_back(StepProgram{{std::move(*program)}});
      const Costs costs = CostsByHand(step.roles[0], issue_ns);
      EXPECT_TRUE(recorder_.BeginStep(step.roles[0], "steady", start).ok());
      Listener* listener = &recorder_;
      start += Simulate(step, {&costs, 1}, {&listener, 1}).time.step;
      recorder_.EndStep(start);
    }
  }

  std::int64_t at_once_mib() const { return recorder_.allocator().reserved_peak().count() / kMiB; }
  /// -1: not told.
  std::int64_t late_mib() const {
    const std::optional<Bytes> late = recorder_.reserved_late();
    return late ? late->count() / kMiB : -1;
  }

 private:
  std::vector<StepProgram> steps_;  // which the recorder looks at
  TraceRecorder recorder_;
};

std::string Kernels(int count) {
  return "  repeat i 0.." + std::to_string(count - 1) + " x" + std::to_string(count) +
         " {\n    compute k pointwise(elements=8, bytes_moved=8) on main\n  }\n";
}

// The collective is issued at 1 and done at 251. The free and the allocation are issued at 1.
constexpr const char* kInUse = R"(  alloc a[0]
  all_reduce sum 8 u8 sum over dp on comm reads a[0] writes a[0]
  free a[0] recorded
)";

TEST(LateReuse, HoldsMemoryBackUntilItsLastUseIsOver) {
  const Played played(std::string(kInUse) + "  alloc a[1]\n  free a[1]\n", 1);
  EXPECT_EQ(played.at_once_mib(), 30);
  EXPECT_EQ(played.late_mib(), 60);
}

TEST(LateReuse, GivesItToWhatIsAllocatedBehindItsUse) {
  EXPECT_EQ(Played(std::string(kInUse) + "  sync stream comm\n  alloc a[1]\n  free a[1]\n", 1).late_mib(), 30);
  // Issuing the kernel takes the host from 300 to 600; the collective is done at 550.
  const std::string kernel = "  compute k pointwise(elements=8, bytes_moved=8) on main\n";
  EXPECT_EQ(Played(std::string(kInUse) + kernel + "  alloc a[1]\n  free a[1]\n", 300).late_mib(), 30);
  EXPECT_EQ(Played(std::string(kInUse) + kernel + "  alloc a[1]\n  free a[1]\n", 200).late_mib(), 60);
}

TEST(LateReuse, AsksWhatTheUsingStreamWasGivenUntilTheFree) {
  // Another collective behind the one that reads it: the event is recorded behind both, done at 501.
  const std::string twice = std::string("  alloc a[0]\n") +
                            "  all_reduce sum 8 u8 sum over dp on comm reads a[0] writes a[0]\n"
                            "  all_reduce other 8 u8 sum over dp on comm\n"
                            "  free a[0] recorded\n"
                            "  compute k pointwise(elements=8, bytes_moved=8) on main\n"
                            "  alloc a[1]\n  free a[1]\n";
  EXPECT_EQ(Played(twice, 130).late_mib(), 60);  // allocated at 390, the first was done at 380
  EXPECT_EQ(Played(twice, 300).late_mib(), 30);  // at 900; done at 850
}

TEST(LateReuse, TakesAViewForTheMemoryThatItIs) {
  EXPECT_EQ(Played(R"(  alloc pool
  all_reduce sum 8 u8 sum over dp on comm reads part writes part
  free pool recorded
  alloc a[1]
  free a[1]
)",
                   1)
                .late_mib(),
            60);
}

TEST(LateReuse, NeedsAnotherStream) {
  const Played played(R"(  alloc a[0]
  compute k pointwise(elements=8, bytes_moved=8) on main reads a[0]
  free a[0] recorded
  alloc a[1]
  free a[1]
)",
                      1);
  EXPECT_EQ(played.late_mib(), 30);
}

TEST(LateReuse, AsksEveryStreamThatUsesIt) {
  // The one is done at 380. The other has work until 760, when the allocation at 520 has passed.
  EXPECT_EQ(Played(R"(  alloc a[0]
  all_reduce one 8 u8 sum over dp on comm reads a[0] writes a[0]
  all_reduce before 8 u8 sum over dp on side
  all_reduce two 8 u8 sum over dp on side reads a[0]
  free a[0] recorded
  compute k pointwise(elements=8, bytes_moved=8) on main
  alloc a[1]
  free a[1]
)",
                   130)
                .late_mib(),
            60);
}

TEST(LateReuse, ForgetsTheUsesOfAnEarlierLife) {
  // The first life is waited for. The second is used by nobody else, while the stream has other work.
  EXPECT_EQ(Played(R"(  alloc a[0]
  all_reduce sum 8 u8 sum over dp on comm reads a[0] writes a[0]
  sync stream comm
  free a[0]
  alloc a[0]
  all_reduce other 8 u8 sum over dp on comm
  free a[0] recorded
  alloc a[1]
  free a[1]
)",
                   1)
                .late_mib(),
            30);
}

TEST(LateReuse, CountsTimeFromTheFirstStepOn) {
  // The second step begins at 300: uses that end at 551 are not over.
  const std::string in_use = std::string(kInUse) + "  alloc a[1]\n  free a[1]\n";
  EXPECT_EQ(Played({Kernels(3), in_use}, 0, {}, 1024).late_mib(), 60);
}

TEST(LateReuse, TheHostIsAtMostAsFarAheadAsTheDriverTakesLaunches) {
  // 1,100 kernels of 100 ns, then the collective, which is done at 110,250; the host is there at 1,101. Behind 1,000
  // kernels more it has waited for the end of launch 2,100 - 1,024, at 107,600; behind 100 more of 1,176, at 117,600.
  const std::string before = Kernels(1100) + R"(  record e on main
  wait e on comm
)" + kInUse;
  const std::string after = "  alloc a[1]\n  free a[1]\n";
  EXPECT_EQ(Played(before + Kernels(1000) + after, 1).late_mib(), 60);
  EXPECT_EQ(Played(before + Kernels(1100) + after, 1).late_mib(), 30);
}

TEST(LateReuse, WaitsForStreamsWhereTheDeviceIsFull) {
  const std::string in_use = std::string(kInUse) + "  alloc a[1]\n  free a[1]\n";
  EXPECT_EQ(Played({in_use}, 1, {}, 60).late_mib(), 60);
  EXPECT_EQ(Played({in_use}, 1, {}, 59).late_mib(), 30);
  EXPECT_EQ(Played({in_use}, 1, {}, 29).late_mib(), -1) << "what lives does not fit";
}

TEST(LateReuse, IsNotToldOfAllocatorsThatHoldNothingBack) {
  for (const AllocatorKind kind : {AllocatorKind::exact, AllocatorKind::arena, AllocatorKind::cuda_async}) {
    EXPECT_EQ(Played({kInUse}, 1, {.kind = kind}, 1024).late_mib(), -1);
  }
}

TEST(LateReuse, IsPredictedWhereMemoryIsFreedInUseOfAnAccelerator) {
  const auto late_of = [](const Job& job) { return Predict(job, {})->roles[0].reserved_late; };
  Job job = OracleJob("fsdp1", 2);
  // The host is ahead of the second microbatch's gather, and a layer's shard is cast beside the root's.
  EXPECT_GT(late_of(job), *Predict(job, {})->roles[0].reserved);
  EXPECT_FALSE(late_of(OracleJob("fsdp2-scatter-each", 2)).has_value());
  job.machine.context.high = job.machine.device_memory + Bytes(1);  // no room for anything
  EXPECT_FALSE(late_of(job).has_value());
  job.machine.context.high = Bytes(0);
  job.machine.accelerator = false;  // the host does the work itself: nothing is under way behind a free
  EXPECT_FALSE(late_of(job).has_value());
}

}  // namespace
}  // namespace tidemark::late_reuse_test
