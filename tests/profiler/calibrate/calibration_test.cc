// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibrate/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "kernels/queue.h"
#include "models/configs/flatten.h"
#include "models/machine/device_bytes.h"
#include "models/machine/presets.h"
#include "profiler/calibrate/calibrate.h"
#include "sim/predict/predict.h"
#include "tests/profiler/calibrate/counted_device.h"
#include "tests/profiler/calibrate/small_sizes.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::calibration_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Bytes kMiB{1 << 20};
constexpr Nanos kEach{5000};

GpuDescription H100(std::optional<Bytes> used) {
  return {.name = "NVIDIA H100 80GB HBM3",
          .driver = "580.65.06",
          .cuda = "13.0",
          .processors = 132,
          .memory = 81079 * kMiB,
          .clocks = {1755, 1980, 2619, 2619},
          .used = used};
}

/// A GPU on which others use 100 MiB, a context takes 400, and kernels as they are loaded 50; a workspace comes with
/// the first one.
GpuUnderCalibration UnderCalibration() {
  GpuUnderCalibration gpu;
  gpu.before = H100(100 * kMiB);
  gpu.opened = H100(500 * kMiB);
  gpu.has_sheet = true;
  gpu.describe = [] { return H100(550 * kMiB + Bytes(kernels::Queue::kWorkspaceBytes)); };
  return gpu;
}

Machine Preset(const std::string& name) {
  const Result<Machine> machine = FindMachine(name, {});
  EXPECT_TRUE(machine.ok());
  return *machine;
}

Machine Calibrated(const GpuUnderCalibration& gpu) {
  CountedDevice device(kEach);
  Calibration calibration(Preset("h100-sxm-80gb"), "NVIDIA H100 80GB HBM3, 2026-01-31, tidemark 1", "2026-01-31");
  CalibrateGpu(calibration, device, SmallSizes(), gpu);
  return calibration.machine();
}

/// Measured once for all tests that only look.
const Machine& Calibrated() {
  static const Machine machine = Calibrated(UnderCalibration());
  return machine;
}

TEST(CalibratedGpu, SaysOnWhatItWasMeasuredAndWhatWasNot) {
  const Machine& machine = Calibrated();
  EXPECT_EQ(machine.device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(machine.driver, "580.65.06");
  EXPECT_EQ(machine.cuda, "13.0");
  EXPECT_EQ(machine.measured_on, "2026-01-31");
  EXPECT_EQ(machine.clocks, (Clocks{1755, 1980, 2619, 2619}));
  EXPECT_EQ(machine.device_memory, 81079 * kMiB);
  EXPECT_EQ(machine.devices_per_node, 8);  // of the preset's node, whose links it has
  EXPECT_EQ(machine.kernel_launch, kEach);
  for (const char* key : {"kernel_launch", "rates.gemm.bf16", "rates.attention_backward.fp32", "achievable_flops",
                          "achievable_bandwidth", "host_link.latency", "host_link.bandwidth", "context.expected"}) {
    EXPECT_THAT(machine.sources.at(key), StartsWith("measured: ")) << key;
    EXPECT_THAT(machine.sources.at(key), HasSubstr("NVIDIA H100 80GB HBM3, 2026-01-31")) << key;
  }
  for (const char* key : {"intra_node.latency", "intra_node.bandwidth", "inter_node.bandwidth", "communicator",
                          "devices_per_node", "overlap_slowdown", "peak.bf16", "memory_bandwidth"}) {
    EXPECT_THAT(machine.sources.at(key), StartsWith("not measured: as in h100-sxm-80gb (")) << key;
  }
}

// NVIDIA's figures stay with what was reached of them: a product of 32 x 32 x 32 took 5 us, a copy of 4 KiB as long.
TEST(CalibratedGpu, KeepsItsSheetsPeaksAndSaysWhatWasReachedOfThem) {
  const Machine preset = Preset("h100-sxm-80gb");
  EXPECT_EQ(Calibrated().peak, preset.peak);
  EXPECT_EQ(Calibrated().memory_bandwidth, preset.memory_bandwidth);
  EXPECT_EQ(Calibrated().achievable_flops, 0.01);  // 13 GFLOP/s of 989 TFLOP/s, and a file takes no less
  EXPECT_EQ(Calibrated().achievable_bandwidth, 0.01);
}

TEST(CalibratedGpu, WithoutASheetHasThePeaksThatItReached) {
  GpuUnderCalibration gpu = UnderCalibration();
  gpu.has_sheet = false;
  const Machine machine = Calibrated(gpu);
  EXPECT_DOUBLE_EQ(machine.peak.at(DType::bf16).per_second(), 13.11e9);  // 2 x 32^3 in 5 us, in four digits
  EXPECT_EQ(machine.peak.size(), 4U);
  EXPECT_DOUBLE_EQ(machine.memory_bandwidth.per_second(), 1.638e9);  // 2 x 4096 B in 5 us
  EXPECT_EQ(machine.achievable_flops, 1);
  EXPECT_EQ(machine.achievable_bandwidth, 1);
  EXPECT_THAT(machine.sources.at("peak.fp32"), HasSubstr("there is no preset with this GPU's sheet"));
}

// 500 less 100 when nothing had run; 50 more with the kernels. What others use, and the workspace, is no context.
TEST(CalibratedGpu, HasTheContextThatTheDriverCounts) {
  EXPECT_EQ(Calibrated().context, (Band{400 * kMiB, 450 * kMiB, 450 * kMiB}));
  EXPECT_EQ(Calibrated().workspace, Bytes(kernels::Queue::kWorkspaceBytes));
  GpuUnderCalibration untold = UnderCalibration();
  untold.before.used = std::nullopt;
  const Machine machine = Calibrated(untold);
  EXPECT_EQ(machine.context, Preset("h100-sxm-80gb").context);
  EXPECT_THAT(machine.sources.at("context.expected"), StartsWith("not measured: "));
}

TEST(CalibratedGpu, BesideOthersHasTheirLink) {
  GpuUnderCalibration gpu = UnderCalibration();
  gpu.gpus = 4;
  gpu.link = Link{Nanos(2500), BytesPerSec(350e9)};
  gpu.communicator = 180 * kMiB;
  gpu.describe = [] {
    GpuDescription mute = H100(std::nullopt);
    mute.driver.clear();
    mute.clocks = {};
    return mute;
  };
  const Machine machine = Calibrated(gpu);
  EXPECT_EQ(machine.intra_node, *gpu.link);
  EXPECT_EQ(machine.communicator, 180 * kMiB);
  EXPECT_EQ(machine.devices_per_node, 4);
  EXPECT_THAT(machine.sources.at("intra_node.latency"), StartsWith("measured: "));
  EXPECT_FALSE(machine.sources.contains("driver"));  // nobody told
  EXPECT_FALSE(machine.sources.contains("clocks.sm_mhz"));
}

TEST(CalibratedGpu, IsReadBackEqual) {
  std::string text;
  for (const auto& [key, value] : MachineYaml(Calibrated())) {
    text += key + ": " + value + "\n";
  }
  const auto root = ParseConfig(text, "mine.yaml");
  ASSERT_TRUE(root.ok());
  const auto settings = Flatten(*root, MachineKeys());
  ASSERT_TRUE(settings.ok());
  const Result<Machine> again = ReadMachine(*settings, {});
  ASSERT_TRUE(again.ok()) << again.error().Text();
  EXPECT_EQ(*again, Calibrated());
}

Nanos StepOn(const Machine& machine, std::int64_t ranks = 1) {
  Job job = SmallJob("ddp-last");
  job.layout.dp = ranks;
  job.machine = machine;
  const Result<Prediction> prediction = Predict(job, {});
  EXPECT_TRUE(prediction.ok());
  return prediction->time.step;
}

/// A host that issues in no time leaves the step to the device.
TEST(CalibratedGpu, EachMeasurementMovesWhatIsPredictedOfIt) {
  Machine machine = Calibrated();
  machine.host_issue = Nanos();
  const Nanos step = StepOn(machine);
  const auto changed = [&](auto change, std::int64_t ranks = 1) {
    Machine other = machine;
    change(other);
    return StepOn(other, ranks);
  };
  EXPECT_GT(changed([](Machine& m) { m.kernel_launch *= 2; }), step);
  EXPECT_GT(changed([](Machine& m) { m.host_issue = Nanos(1'000'000); }), step);
  for (const char* kind : {"gemm.bf16", "attention.bf16", "attention_backward.bf16", "norm.bf16", "rope.bf16",
                           "embedding.bf16", "activation.bf16", "cross_entropy"}) {
    EXPECT_GT(changed([kind](Machine& m) {
                for (RatePoint& point : m.rates.at(kind)) {
                  point.per_second /= 100;
                }
              }),
              step)
        << kind;
  }
  const Nanos of_four = StepOn(machine, 4);
  EXPECT_GT(changed([](Machine& m) { m.intra_node.latency = Nanos(1'000'000); }, 4), of_four);
  EXPECT_GT(changed([](Machine& m) { m.intra_node.bandwidth = BytesPerSec(1e6); }, 4), of_four);
}

// A context of 450 MiB, 32 MiB of workspace and two communicators of 200 MiB, as its preset has, around 1000 MiB.
TEST(CalibratedGpu, ItsContextIsInTheBytesOfTheDevice) {
  const Band device =
      DeviceBytes(Calibrated(), {.allocated = 1000 * kMiB, .reserved = 1000 * kMiB, .communicators = 2});
  EXPECT_EQ(device.low, (1000 + 400 + 32 + 400) * kMiB);
  EXPECT_EQ(device.expected, (1000 + 450 + 32 + 400) * kMiB);
  EXPECT_EQ(device.high, (1000 + 450 + 32 + 400) * kMiB);
}

}  // namespace
}  // namespace tidemark::calibration_test
