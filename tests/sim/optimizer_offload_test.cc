// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "models/job/validate.h"
#include "sim/program/verify.h"
#include "tests/base/sanitizer.h"
#include "tests/sim/deepspeed_job.h"
#include "tests/sim/offloaded_job.h"

// Optimizers in host memory. Numbers are for the oracle model with N = 4: P = 110,633,984 parameters, of which a rank
// updates P/4 = 27,658,496; its largest are the embedding and the head with 32,768,000 each. The test machine's link to
// the host moves 50 bytes/ns behind 5 us, and its host 400 bytes/ns, which the node's ranks share.

namespace tidemark::deepspeed::optimizer_offload_test {
namespace {

MemoryPeak PeakOf(const Job& job, StepKind kind = StepKind::steady) {
  return FoldMemory(Sound(job, kind).roles.front());
}

std::vector<Copy> CopiesOf(const Job& job, const std::string& name, StepKind kind = StepKind::steady) {
  std::vector<Copy> copies;
  const Program program = Unroll(Sound(job, kind).roles.front());
  for (const Node& node : program.nodes) {
    const auto* copy = std::get_if<Copy>(&node);
    if (copy != nullptr && program.names[copy->name.index] == name) {
      copies.push_back(*copy);
    }
  }
  return copies;
}

/// Sums of the bytes of all copies of this name.
std::int64_t BytesOf(const Job& job, const std::string& name) {
  std::int64_t bytes = 0;
  for (const Copy& copy : CopiesOf(job, name)) {
    bytes += copy.bytes.count();
  }
  return bytes;
}

Nanos DurationOf(const Job& job, const std::string& name) {
  const StepProgram step = Sound(job);
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  const Program& program = step.roles.front();
  Nanos sum;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    std::visit(
        [&](const auto& leaf) {
          if constexpr (requires { leaf.name; }) {
            sum += program.names[leaf.name.index] == name ? costs.front().device[i] : Nanos(0);
          }
        },
        program.nodes[i]);
  }
  return sum;
}

// Of 16 bytes per parameter share that a rank keeps for its part, 12 are the master and two moments in fp32. What comes
// is one buffer for a gradient as large as the largest parameter, in bf16, which serves no purpose without offload.
TEST(Offload, TakesTwelveBytesPerOwnParameterFromTheDevice) {
  for (const char* strategy : {"deepspeed-zero1", "deepspeed-zero2", "deepspeed-coalesce"}) {
    const auto optimizer_on_device = [&](bool offload) {
      Job job = OracleJob(strategy, 2);
      job.axes.optimizer_step.offload = offload;
      const StepProgram step = Sound(job);
      Bytes bytes;
      for (const Buffer& buffer : step.roles.front().buffers) {
        const bool counts = buffer.place == Place::device && buffer.resident;
        bytes += counts ? buffer.bytes() * buffer.count() : Bytes(0);
      }
      return bytes.count();
    };
    EXPECT_EQ(optimizer_on_device(false) - optimizer_on_device(true), 12 * kPart - 2 * kHead) << strategy;
    EXPECT_EQ(PeakOf(Offloaded(strategy, 2)).by_category[Category::optimizer], Bytes(0)) << strategy;
  }
}

// On the host: master, two moments and gradient in fp32, the new parameters in bf16, 18 bytes per parameter of the
// part, a buffer for the largest gradient, and where microbatches are reduced one by one their sum in bf16, 2 bytes
// more.
TEST(Offload, TheHostHoldsStatesGradientsAndNewParameters) {
  EXPECT_EQ(PeakOf(Offloaded("deepspeed-zero1", 4)).host.count(), 18 * kPart + 2 * kHead);
  EXPECT_EQ(PeakOf(Offloaded("deepspeed-coalesce", 4)).host.count(), 18 * kPart + 2 * kHead);
  EXPECT_EQ(PeakOf(Offloaded("deepspeed-zero2", 1)).host.count(), 18 * kPart + 2 * kHead);
  EXPECT_EQ(PeakOf(Offloaded("deepspeed-zero2", 4)).host.count(), 20 * kPart + 2 * kHead);
  // torch.optim makes moments in the first step; the sum appears with the first microbatch that waits for another.
  EXPECT_EQ(PeakOf(Offloaded("deepspeed-zero2", 4), StepKind::first).host.count(), 20 * kPart + 2 * kHead);
  EXPECT_EQ(PeakOf(OracleJob("deepspeed-zero2", 4)).host.count(), 0);
}

// ZeRO-2 of M microbatches: the sum goes to the host M times and comes back M - 1 times, in bf16; the fp32 gradient
// goes once, and the new bf16 parameters come once. Without anything to sum up, only the last two.
TEST(Offload, CopiesOfZeroTwoEachWay) {
  for (const std::int64_t microbatches : {1, 2, 4}) {
    const Job job = Offloaded("deepspeed-zero2", microbatches);
    const std::int64_t sums = microbatches == 1 ? 0 : microbatches;
    EXPECT_EQ(BytesOf(job, "sum to host"), sums * 2 * kPart);
    EXPECT_EQ(BytesOf(job, "sum to device"), (microbatches - 1) * 2 * kPart);
    EXPECT_EQ(BytesOf(job, "gradient to host"), 4 * kPart);
    EXPECT_EQ(BytesOf(job, "weights to device"), 2 * kPart);
  }
  // Stage 1 and coalesce_grad_reduction reduce once, so that micro_step_id is 0 at the boundary: nothing is summed up.
  for (const char* strategy : {"deepspeed-zero1", "deepspeed-coalesce"}) {
    const Job job = Offloaded(strategy, 4);
    EXPECT_EQ(BytesOf(job, "sum to host") + BytesOf(job, "sum to device"), 0) << strategy;
    EXPECT_EQ(BytesOf(job, "gradient to host"), 4 * kPart) << strategy;
  }
}

// DeepSpeedCPUAdam reads and writes master and moments and reads the gradient, 28 bytes per element, 12 operations of
// arithmetic: 27,658,496 * 28 = 774,437,888 bytes at 400/4 bytes/ns are 7,744,379 ns, and 331,901,952 flops at 10/4
// TFLOP/s 132,761 ns. Casting to bf16 moves 6 bytes: 1,659,510 ns. The copy back is 5 us and 55,316,992 / 50 ns.
TEST(Offload, TheHostUpdatesAsFastAsItsPartOfTheNodesMemoryAllows) {
  const Job job = Offloaded("deepspeed-zero2", 4);
  EXPECT_EQ(DurationOf(job, "optimizer update"), Nanos(7'744'379));
  EXPECT_EQ(DurationOf(job, "masters to weights"), Nanos(1'659'510));
  EXPECT_EQ(DurationOf(job, "weights to device"), Nanos(5'000 + 1'106'340));
  // Alone on its node a rank updates four times as much with all of it.
  Job alone = Offloaded("deepspeed-zero2", 4);
  alone.layout.dp = 1;
  EXPECT_EQ(DurationOf(alone, "optimizer update"), Nanos(7'744'379));
}

TEST(Offload, ADeviceWithoutWorkWaitsForTheHost) {
  const Job job = Offloaded("deepspeed-zero2", 1);
  const StepProgram step = Sound(job);
  const StepTime time = Simulate(step, PriceAll(step, job.machine)).time;
  EXPECT_EQ(time.optimizer, Nanos(0));
  // The update, the cast, and at least the copy of the new parameters, which runs on the compute stream.
  EXPECT_GT(time.host, Nanos(7'744'379 + 1'659'510 + 1'111'340));
}

TEST(Offload, BothEnginesAgreeWhateverElseIsSet) {
  for (const char* strategy : {"deepspeed-zero1", "deepspeed-zero2", "deepspeed-coalesce", "deepspeed-zero3"}) {
    for (const std::int64_t microbatches : AllOrLast<std::int64_t>({1, 2, 8, 3})) {
      for (const std::int64_t ranks : {1, 3, 4}) {
        for (const std::int64_t bucket : {1'000'000, 20'000'000, 500'000'000}) {
          for (const int bits : {0, 1, 2, 3}) {
            Job job = Offloaded(strategy, microbatches);
            job.layout.dp = ranks;
            job.axes.sync.bucket_elements = bucket;
            job.axes.sync.overlap = (bits & 1) != 0;
            job.axes.optimizer_step.clip_norm = (bits & 2) != 0 ? 1 : 0;
            for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
              ExpectEnginesAgree(job, kind);
            }
          }
        }
      }
    }
  }
}

// ZeRO-3 also keeps the partitions that it accumulates in on the host, in bf16 (`device=self.device`). P/4 is exact for
// every parameter. Each microbatch copies its part there and back, in bf16; the last one's fp32 gradient goes once
// more.
TEST(Offload, ZeroThreeKeepsItsGradientPartitionsOnTheHost) {
  const Job job = Offloaded("deepspeed-zero3", 4);
  const MemoryPeak peak = PeakOf(job);
  EXPECT_EQ(peak.by_category[Category::optimizer], Bytes(0));
  // Masters, moments and gradients in fp32, partitions in bf16, and in the step the new bf16 parameters.
  EXPECT_EQ(peak.host.count(), (4 + 8 + 4 + 2 + 2) * kPart);
  EXPECT_EQ(BytesOf(job, "partition to host"), 4 * 2 * kPart);
  EXPECT_EQ(BytesOf(job, "partition to device"), 4 * 2 * kPart);
  EXPECT_EQ(BytesOf(job, "gradient to host"), 4 * kPart);
  EXPECT_EQ(BytesOf(job, "weights to device"), 2 * kPart);
  const auto resident = [](const Job& each) {
    const StepProgram step = Sound(each);
    Bytes bytes;
    for (const Buffer& buffer : step.roles.front().buffers) {
      const bool counts = buffer.place == Place::device && buffer.resident;
      bytes += counts ? buffer.bytes() * buffer.count() : Bytes(0);
    }
    return bytes.count();
  };
  EXPECT_EQ(resident(OracleJob("deepspeed-zero3", 4)) - resident(job), (12 + 2) * kPart);
}

// The masters of fp32 parameters are a copy of them (ZeRO keeps one of its part), and nothing is cast on the way.
TEST(Offload, GradientsOfFp32ParametersGoAsTheyAre) {
  Job job = Offloaded("deepspeed-zero2", 2);
  Precision& precision = job.axes.precision;
  precision.params = precision.gradients = precision.accumulate = precision.reduce = DType::fp32;
  ExpectEnginesAgree(job, StepKind::steady);
  EXPECT_EQ(BytesOf(job, "sum to host"), 2 * 4 * kPart);
  EXPECT_EQ(BytesOf(job, "weights to device"), 4 * kPart);
  const StepProgram step = Sound(job);
  for (const Buffer& buffer : step.roles.front().buffers) {
    EXPECT_NE(buffer.name, "cast gradient");
  }
}

std::vector<std::string> RulesBroken(StepProgram step) {
  std::vector<std::string> rules;
  for (const Finding& finding : Verify(step)) {
    rules.emplace_back(Name(finding.rule));
  }
  return rules;
}

/// The program of one role, written out and without the copies of this name.
StepProgram Without(const Job& job, const std::string& name) {
  Program program = Unroll(Sound(job).roles.front());
  std::erase_if(program.nodes, [&](const Node& node) {
    const auto* copy = std::get_if<Copy>(&node);
    return copy != nullptr && program.names[copy->name.index] == name;
  });
  return {{program}};
}

TEST(Offload, AMissingCopyIsAFault) {
  using Rules = std::vector<std::string>;
  for (const char* strategy : {"deepspeed-zero2", "deepspeed-zero3"}) {
    const Job job = Offloaded(strategy, 1);
    EXPECT_EQ(RulesBroken(Without(job, "no such copy")), Rules()) << strategy;
    for (const std::string& rule : RulesBroken(Without(job, "weights to device"))) {
      EXPECT_EQ(rule, "lost_update") << strategy;
    }
    EXPECT_FALSE(RulesBroken(Without(job, "weights to device")).empty()) << strategy;
    for (const std::string& rule : RulesBroken(Without(job, "gradient to host"))) {
      EXPECT_EQ(rule, "lost_gradient") << strategy;
    }
    EXPECT_FALSE(RulesBroken(Without(job, "gradient to host")).empty()) << strategy;
  }
  // The sum so far is what the first microbatches have left.
  EXPECT_FALSE(RulesBroken(Without(Offloaded("deepspeed-zero2", 2), "sum to host")).empty());
}

TEST(Offload, AKernelOfTheDeviceDoesNotTouchTheHostsMemory) {
  StepProgram step = Sound(Offloaded("deepspeed-zero2", 1));
  for (Node& node : step.roles.front().nodes) {
    auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && std::holds_alternative<OptimizerUpdate>(compute->op)) {
      compute->stream = StreamId{1};
    }
  }
  const std::vector<std::string> rules = RulesBroken(step);
  EXPECT_EQ(std::count(rules.begin(), rules.end(), "wrong_place"), 3);  // gradient, master, moments
}

// Three buffers of 10 bytes in host memory at once, and 7 bytes on the device; the host itself works for 8 ns at 1
// byte/ns, behind which the kernel is issued, 1 ns later: 9 ns of host, then 5 of compute.
TEST(Offload, HostMemoryAndHostTimeOfALoop) {
  const Result<Program> program = ParseProgram(
      "role 0 \"only\", 1 ranks\nstreams:\n  host host\n  main compute\n"
      "buffers:\n  h[3] workspace 10 u8 born on host, host memory\n  d workspace 7 u8 born on main\n"
      "program:\n  repeat i 0..2 x3 {\n    alloc h[i]\n  }\n  alloc d\n"
      "  optimizer \"on host\" optimizer_update(elements=1, bytes_moved=8) on host\n"
      "  compute k pointwise(elements=1, bytes_moved=5) on main\n  free d\n"
      "  repeat i 0..2 x3 {\n    free h[i]\n  }\n");
  ASSERT_TRUE(program.ok()) << program.error().Text();
  Machine machine;
  machine.peak = {{DType::fp32, FlopsPerSec(1e15)}};
  machine.memory_bandwidth = machine.host_memory_bandwidth = BytesPerSec(1e9);
  machine.host_flops = FlopsPerSec(1e15);
  machine.host_issue = Nanos(1);
  const StepProgram step{{*program}};
  const std::vector<Costs> costs = PriceAll(step, machine);
  const Evaluation evaluation = Simulate(step, costs);
  EXPECT_EQ(evaluation, EvaluateClosedForm(step, costs));
  EXPECT_EQ(evaluation.roles.front().host, Bytes(30));
  EXPECT_EQ(evaluation.roles.front().allocated, Bytes(7));
  EXPECT_EQ(evaluation.time.host, Nanos(9));
  EXPECT_EQ(evaluation.time.compute, Nanos(5));
  EXPECT_EQ(evaluation.time.step, Nanos(14));
}

TEST(Offload, IsRefusedWhereDeepSpeedDoesNotHaveIt) {
  Job job = Offloaded("deepspeed-zero2", 2);
  job.axes.optimizer_step.kernel = OptimizerStep::Kernel::foreach_;
  EXPECT_EQ(Refusal(job), "optimizer_step.kernel: DeepSpeedCPUAdam does the whole update of an element in one pass");
  job = Offloaded("deepspeed-zero2", 2);
  job.optimizer = OptimizerKind::sgd;
  EXPECT_TRUE(Refusal(job).starts_with("optimizer_step.offload: You are using ZeRO-Offload with a client provided"));
}

TEST(Offload, EveryStrategyHasItOrSaysWhyNot) {
  const std::set<std::string> have = {"deepspeed-zero1",           "deepspeed-zero2",    "deepspeed-coalesce",
                                      "deepspeed-zero3",           "fsdp2-scatter-each", "fsdp2-defer",
                                      "fsdp2-keep-after-backward", "fsdp2-keep-all",     "hsdp"};
  for (const Strategy& strategy : AllStrategies()) {
    Job job = Offloaded(strategy.defaults.name, 1);
    job.layout.dp = 4;
    if (strategy.defaults.name == "hsdp") {
      job.axes.shard.replicas = 2;
    }
    const std::string refusal = Refusal(job);
    if (have.contains(strategy.defaults.name)) {
      EXPECT_EQ(refusal, "") << strategy.defaults.name;
    } else {
      EXPECT_TRUE(refusal.starts_with("optimizer_step.offload: ")) << strategy.defaults.name << " " << refusal;
      EXPECT_FALSE(refusal.ends_with("has no such setting")) << strategy.defaults.name;
    }
  }
}

// The job is refused before any strategy sees it.
TEST(Offload, NeedsAMachineThatKnowsItsHost) {
  Job job = Offloaded("deepspeed-zero2", 2);
  EXPECT_TRUE(Validate(job).ok());
  job.machine.host_flops = FlopsPerSec();
  EXPECT_EQ(Validate(job).error().message,
            "the machine does not say how fast its host is, which would update the parameters");
}

}  // namespace
}  // namespace tidemark::deepspeed::optimizer_offload_test
