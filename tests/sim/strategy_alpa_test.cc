// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

// Memory is counted by hand in units of P, the bytes of the parameters: parameters P, two bf16 moments 2 P, accumulated
// gradients P; contiguous buffer P. The largest gradient is the head's, 32000 x 1024 in bf16.

namespace tidemark::strategy_alpa_test {
namespace {

using Executable = Sync::Executable;

constexpr std::int64_t kP = 221'267'968;
constexpr std::int64_t kLargestGradient = 65'536'000;

CommunicationRow OnlyRow(const Job& job) {
  const std::vector<CommunicationRow> rows = CountCommunication(Sound(job).roles.front());
  EXPECT_EQ(rows.size(), 1U);
  return rows.front();
}

/// Names of the executables that one step launches, in order.
std::vector<std::string> Launches(const Job& job, std::size_t role = 0) {
  const Program program = Unroll(Sound(job).roles[role]);
  std::vector<std::string> launches;
  for (const Node& node : program.nodes) {
    const auto* compute = std::get_if<Compute>(&node);
    const std::string name = compute == nullptr ? "" : program.names[compute->name.index];
    if (name.starts_with("launch ")) {
      launches.push_back(name.substr(7));
    }
  }
  return launches;
}

template <class Leaf>
std::int64_t CountOf(const Job& job) {
  const Program program = Unroll(Sound(job).roles.front());
  return std::count_if(program.nodes.begin(), program.nodes.end(),
                       [](const Node& node) { return std::holds_alternative<Leaf>(node); });
}

std::int64_t KernelsBesideCollectives(const Job& job) {
  const Program program = Unroll(Sound(job).roles.front());
  return std::count_if(program.nodes.begin(), program.nodes.end(), [](const Node& node) {
    const auto* compute = std::get_if<Compute>(&node);
    return compute != nullptr && compute->beside.valid();
  });
}

std::int64_t StepTime(const Job& job) {
  const StepProgram step = Sound(job);
  return Simulate(step, PriceAll(step, job.machine)).time.step.count();
}

Job AlpaJob(std::int64_t microbatches = 4) { return OracleJob("alpa", microbatches); }

Job Separated(Executable executable) {
  Job job = AlpaJob();
  job.axes.sync.executable = executable;
  return job;
}

// Table of wire bytes, row of DDP no_sync, DeepSpeed ZeRO-0 and Alpa: AR 2P x1.
TEST(Alpa, ReducesAllGradientsOnceInOneAllReduce) {
  const CommunicationRow row = OnlyRow(AlpaJob());
  EXPECT_EQ(row.kind, "all_reduce");
  EXPECT_EQ(row.count, 1);
  EXPECT_EQ(row.payload.count(), kP);
  EXPECT_EQ(row.wire.count(), 331'901'952);
}

TEST(Alpa, EveryWayToSynchroniseSendsTheSame) {
  for (const Executable executable : {Executable::two, Executable::branch, Executable::separate}) {
    EXPECT_EQ(OnlyRow(Separated(executable)).wire.count(), 331'901'952);
  }
  EXPECT_EQ(OnlyRow(OracleJob("alpa-style2", 4)).wire.count(), 331'901'952);
}

// Style 1: M P b, as much as DDP without no_sync.
TEST(Alpa, ALoopOutsideReducesEveryMicrobatch) {
  const CommunicationRow row = OnlyRow(OracleJob("alpa-style1", 4));
  EXPECT_EQ(row.count, 4);
  EXPECT_EQ(row.payload.count(), 4 * kP);
  EXPECT_EQ(row.wire.count(), 1'327'607'808);
}

// B2 costs M + 2 launches: zeros, M microbatches, the update. C3 one more. B1 one.
TEST(Alpa, LaunchesAreThoseOfTheDesign) {
  EXPECT_EQ(Launches(AlpaJob(2)),
            (std::vector<std::string>{"allocate_zero_buffers", "accumulate_grad", "accumulate_grad", "apply_grad"}));
  EXPECT_EQ(Launches(Separated(Executable::two)).size(), 6U);
  const std::vector<std::string> separate = Launches(Separated(Executable::separate));
  EXPECT_EQ(separate.size(), 7U);
  EXPECT_EQ(separate[5], "sync_grad");
  Job looped = Separated(Executable::separate);
  looped.axes.loop = MicrobatchLoop::program;
  EXPECT_EQ(Launches(looped), (std::vector<std::string>{"train_step"}));
  EXPECT_EQ(Launches(OracleJob("alpa-style2", 4)), (std::vector<std::string>{"train_step"}));
  EXPECT_EQ(Launches(OracleJob("alpa-style1", 2)),
            (std::vector<std::string>{"compute_grad", "compute_grad", "add_gradients", "apply_grad"}));
}

// With devices that take no time a step is what the host issues: the loop in the program saves M + 1 launches.
TEST(Alpa, ALaunchCostsTheHostAsMuchAsIssuingAnOperation) {
  Job job = Separated(Executable::separate);
  job.axes.buffers.contiguous_gradients = false;
  job.machine.host_issue = Nanos(1'000'000'000);
  Job looped = job;
  looped.axes.loop = MicrobatchLoop::program;
  const std::int64_t saved = StepTime(job) - StepTime(looped);
  EXPECT_EQ(saved, (7 - 1) * 1'000'000'000LL);
}

TEST(Alpa, GradientsStartAsZerosBeforeTheFirstMicrobatch) {
  Job job = AlpaJob();
  job.axes.buffers.contiguous_gradients = false;
  const Ledger ledger = BookOf(job);
  EXPECT_EQ(SystemBytes(ledger.between_microbatches.at(0)).count(), 3 * kP);
  EXPECT_EQ(ledger.highest_before_backward.count(), 4 * kP);
  // 885,071,872 between microbatches: DDP's row without its buckets, 1,106,339,840 - 221,267,968.
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(SystemBytes(ledger.between_microbatches.at(i)).count(), 885'071'872);
  }
  EXPECT_EQ(ledger.at_window_end[Category::accumulator].count(), kP);
  EXPECT_EQ(ledger.after_optimizer[Category::accumulator].count(), 0);
  EXPECT_EQ(ledger.highest_system.count(), 4 * kP + kLargestGradient);
  // With everything donated apply_grad allocates nothing.
  EXPECT_EQ(SystemBytes(ledger.at_window_end).count(), 4 * kP);
  EXPECT_LT(ledger.highest_in_optimizer.count(), 4 * kP);
}

// The executable that shipped copies gradients into one buffer in every microbatch: only the all-reduce is skipped.
TEST(Alpa, AContiguousBufferStandsBesideTheGradients) {
  EXPECT_EQ(BookOf(AlpaJob()).highest_system.count(), 5 * kP);
  const auto contiguous_in_first = [](Executable executable) {
    const StepProgram step = Sound(Separated(executable));
    std::int64_t allocated = 0;
    for (const Node& node : Unroll(step.roles.front()).nodes) {
      if (const auto* begin = std::get_if<Begin>(&node); begin != nullptr && begin->microbatch.offset == 1) {
        break;
      }
      if (const auto* alloc = std::get_if<Alloc>(&node)) {
        const Buffer& buffer = step.roles.front().buffers[alloc->buffer.buffer.index];
        allocated += buffer.category == Category::bucket ? buffer.bytes().count() : 0;
      }
    }
    return allocated;
  };
  EXPECT_EQ(contiguous_in_first(Executable::skip_channels), kP);
  EXPECT_EQ(contiguous_in_first(Executable::two), 0);
  EXPECT_EQ(contiguous_in_first(Executable::branch), kP);  // the larger branch's
  EXPECT_EQ(contiguous_in_first(Executable::separate), 0);
}

TEST(Alpa, WithoutDonationOldAndNewGradientsAreAliveTogether) {
  Job job = AlpaJob();
  job.axes.buffers.contiguous_gradients = false;
  job.axes.buffers.donate = false;
  const Ledger ledger = BookOf(job);
  EXPECT_EQ(ledger.highest_system.count(), 5 * kP + kLargestGradient);
  EXPECT_EQ(SystemBytes(ledger.between_microbatches.at(2)).count(), 4 * kP);
  // apply_grad: parameters and moments twice, and the gradients.
  EXPECT_EQ(ledger.highest_in_optimizer.count(), 7 * kP);
  EXPECT_EQ(SystemBytes(ledger.after_optimizer).count(), 3 * kP);
}

// Peak = max(accumulate_grad, apply_grad): with hardly any activations and without donation it is apply_grad's.
TEST(Alpa, ThePeakIsThatOfTheLargerExecutable) {
  Job job = AlpaJob();
  job.axes.buffers.donate = false;
  const auto peak_at = [](const Job& of) {
    const StepProgram step = Sound(of);
    return Simulate(step, PriceAll(step, of.machine)).roles.front().phase;
  };
  EXPECT_NE(peak_at(job), Phase::optimizer);
  job.sequence_length = 16;
  job.micro_batch_size = 1;
  EXPECT_EQ(peak_at(job), Phase::optimizer);
}

TEST(Alpa, AllReducesBehindOneAnotherOverlapOnlyWhereTheCombinerLeavesSeveral) {
  for (const Executable executable : {Executable::skip_channels, Executable::two}) {
    Job job = Separated(executable);
    job.axes.buffers.contiguous_gradients = false;
    EXPECT_EQ(KernelsBesideCollectives(job), 0);
    job.axes.sync.bucket_bytes = Bytes(32 << 20);
    EXPECT_GT(KernelsBesideCollectives(job), 0);
  }
  for (const Executable executable : {Executable::branch, Executable::separate}) {
    Job job = Separated(executable);
    job.axes.buffers.contiguous_gradients = false;
    job.axes.sync.bucket_bytes = Bytes(32 << 20);
    EXPECT_EQ(KernelsBesideCollectives(job), 0);
  }
}

// C1 overlaps, C2 and C3 expose the whole all-reduce.
TEST(Alpa, ABranchAndASeparateExecutableExposeWhatTwoExecutablesHide) {
  const auto exposed = [](Executable executable) {
    Job job = Separated(executable);
    job.axes.buffers.contiguous_gradients = false;
    job.axes.sync.bucket_bytes = Bytes(32 << 20);
    const StepProgram step = Sound(job);
    return Simulate(step, PriceAll(step, job.machine)).time.exposed_communication.count();
  };
  EXPECT_LT(exposed(Executable::two), exposed(Executable::separate));
  EXPECT_EQ(exposed(Executable::two), exposed(Executable::skip_channels));
  EXPECT_GE(exposed(Executable::branch), exposed(Executable::separate));
}

TEST(Alpa, TheHostWaitsForAConditionalsPredicateInEveryMicrobatch) {
  EXPECT_EQ(CountOf<HostSync>(Separated(Executable::branch)), 4);
  EXPECT_EQ(CountOf<HostSync>(AlpaJob()), 0);
}

// Bytes in order of arrival: head 65,536,000; norm 2,048; of each layer down 5,767,168, gate and up 11,534,336, then
// 5,246,976; embedding 65,536,000. 32 MiB hold norm, one layer (22,548,480) and the next one's down; then what is left
// of that layer and a down; the same again; what is left of the last layer. Head and embedding are larger than 32 MiB.
TEST(Alpa, TheCombinerClosesBeforeItsThreshold) {
  Job job = AlpaJob(1);
  job.axes.sync.bucket_bytes = Bytes(32 << 20);
  std::vector<std::int64_t> payloads;
  for (const Node& node : Unroll(Sound(job).roles.front()).nodes) {
    if (const auto* collective = std::get_if<Collective>(&node)) {
      payloads.push_back(collective->payload().count());
    }
  }
  EXPECT_EQ(payloads,
            (std::vector<std::int64_t>{65'536'000, 28'317'696, 22'548'480, 22'548'480, 16'781'312, 65'536'000}));
}

TEST(Alpa, Zero2AccumulatesWholeGradientsAndScattersOnce) {
  const Job job = OracleJob("alpa-zero2", 4);
  const std::vector<CommunicationRow> rows = CountCommunication(Sound(job).roles.front());
  ASSERT_EQ(rows.size(), 2U);
  for (const CommunicationRow& row : rows) {
    EXPECT_EQ(row.count, 1);
    EXPECT_EQ(row.payload.count(), kP);
    EXPECT_EQ(row.wire.count(), 331'901'952 / 2);
  }
  const Ledger ledger = BookOf(job);
  EXPECT_EQ(ledger.at_window_end[Category::accumulator].count(), kP);
  EXPECT_EQ(ledger.at_window_end[Category::optimizer].count(), 2 * kP / 4);
}

TEST(Alpa, StatesExistBeforeTheFirstStep) {
  const Job job = AlpaJob();
  const Ledger first = Audit(Sound(job, StepKind::first), job.machine);
  EXPECT_EQ(first.highest_system, Audit(Sound(job), job.machine).highest_system);
}

TEST(Alpa, APipelineSynchronisesInTheLastBackwardOfEachStage) {
  Job job = AlpaJob(8);
  job.layout.pp = 4;
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe}) {
    job.schedule = schedule;
    const StepProgram step = Sound(job);
    EXPECT_TRUE(Verify(step).empty()) << Verify(step).front().message;
    for (std::size_t role = 0; role < step.roles.size(); ++role) {
      EXPECT_EQ(CountCommunication(step.roles[role]).front().count, 1);
      EXPECT_EQ(Launches(job, role).size(), 2U + 16U);  // zeros, 8 forwards, 8 backwards, the update
    }
  }
}

}  // namespace
}  // namespace tidemark::strategy_alpa_test
