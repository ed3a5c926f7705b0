// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "sim/engine/simulate.h"
#include "sim/predict/predict.h"
#include "sim/predict/trace_recorder.h"
#include "sim/program/text.h"
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

buffers:
  a[2]  activation  31457280  u8  born on main
  pool  activation  31457280  u8  born on main
  part  activation         8  u8  view of pool

program:
)";

/// Kernels take 100 ns and collectives 250; issuing either takes the host `issue_ns`.
class Played {
 public:
  Played(const std::string& body, std::int64_t issue_ns, const AllocatorOptions& options = {}) : recorder_(options) {
    Result<Program> program = ParseProgram(kHead + body);
    EXPECT_TRUE(program.ok()) << program.error().Text();
    const StepProgram step{{*program}};
    Costs costs;
    costs.host_issue = Nanos(issue_ns);
    for (const Node& node : program->nodes) {
      const bool collective = std::holds_alternative<Collective>(node);
      costs.device.push_back(Nanos(collective ? 250 : std::holds_alternative<Compute>(node) ? 100 : 0));
    }
    EXPECT_TRUE(recorder_.BeginStep(step.roles[0], "steady", Nanos()).ok());
    Listener* listener = &recorder_;
    Simulate(step, {&costs, 1}, {&listener, 1});
  }

  std::int64_t at_once_mib() const { return recorder_.allocator().reserved_peak().count() / kMiB; }
  /// -1: not told.
  std::int64_t late_mib() const {
    const std::optional<Bytes> late = recorder_.reserved_late();
    return late ? late->count() / kMiB : -1;
  }

 private:
  TraceRecorder recorder_;
};

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

TEST(LateReuse, IsNotToldWhereNothingIsFreedInUseOrTheAllocatorHoldsNothingBack) {
  EXPECT_EQ(Played("  alloc a[0]\n  free a[0]\n", 1).late_mib(), -1);
  for (const AllocatorKind kind : {AllocatorKind::exact, AllocatorKind::arena, AllocatorKind::cuda_async}) {
    EXPECT_EQ(Played(kInUse, 1, {.kind = kind}).late_mib(), -1);
  }
}

TEST(LateReuse, IsPredictedOfAcceleratorsOnly) {
  Job job = OracleJob("fsdp1", 2);
  const auto late_of = [&job] { return Predict(job, {})->roles[0].reserved_late; };
  ASSERT_TRUE(late_of().has_value());
  EXPECT_GE(*late_of(), *Predict(job, {})->roles[0].reserved);
  job.machine.accelerator = false;  // the host does the work itself: nothing is under way behind a free
  EXPECT_FALSE(late_of().has_value());
}

}  // namespace
}  // namespace tidemark::late_reuse_test
