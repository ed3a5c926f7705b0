// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "models/machine/rates.h"
#include "profiler/calibrate/operands.h"
#include "profiler/calibrate/stopwatch.h"
#include "profiler/device/host_device.h"
#include "sim/predict/steps.h"
#include "sim/program/program.h"
#include "sim/strategies/strategy.h"
#include "tests/profiler/calibrate/counted_device.h"
#include "tests/profiler/calibrate/small_sizes.h"
#include "tests/profiler/execute/lazy_device.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::calibrate_test {
namespace {

// The last step takes 100 ns, its two kernels 30 and 50 of them: 20 remain for two. The first step does not count.
TEST(Calibration, WhatSurroundsAKernelIsTheStepLessItsKernels) {
  Trace trace;
  trace.steps = {{"first", Nanos(0), Nanos(1000), 0}, {"steady", Nanos(1000), Nanos(1100), 0}};
  trace.slices = {{0, {}, Nanos(10), Nanos(20)}, {0, {}, Nanos(1000), Nanos(1030)}, {0, {}, Nanos(1040), Nanos(1090)}};
  EXPECT_EQ(TimeAroundKernels(trace), Nanos(10));
}

// The host has issued the last step's three operations 60 ns after it began; the device goes on until 100.
TEST(Calibration, AnOperationIsIssuedInItsPartOfThePhases) {
  Trace trace;
  trace.steps = {{"first", Nanos(0), Nanos(1000), 0}, {"steady", Nanos(1000), Nanos(1100), 0}};
  trace.spans = {{"forward", 0, Nanos(0), Nanos(900)},
                 {"forward", 0, Nanos(1000), Nanos(1020)},
                 {"backward", 0, Nanos(1020), Nanos(1060)}};
  trace.slices = {{0, {}, Nanos(10), Nanos(20)},
                  {0, {}, Nanos(1010), Nanos(1030)},
                  {0, {}, Nanos(1030), Nanos(1070)},
                  {0, {}, Nanos(1070), Nanos(1100)}};
  EXPECT_EQ(OperationsOf(trace), 3);
  EXPECT_EQ(TimeToIssue(trace, 3), Nanos(20));
}

TEST(Calibration, RatesHaveFourDigits) {
  EXPECT_EQ(FourDigits(90'767'107'152.5), 90'770'000'000.0);
  EXPECT_EQ(FourDigits(1'000'000), 1'000'000.0);
}

TEST(Calibration, AStopwatchTakesTheFastestOfManyCalls) {
  HostDevice device;
  std::atomic<std::int64_t> calls = 0;  // which no compiler may count all at once
  const auto start = std::chrono::steady_clock::now();
  const double seconds = Stopwatch(device, Bytes()).SecondsOfWork([&](const kernels::Queue&) { ++calls; });
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(calls, 20);
  EXPECT_GT(seconds, 0);
  EXPECT_LE(seconds * static_cast<double>(calls), all);
}

TEST(Calibration, WhereWorkIsNotDoneWhenItIsGivenMarksTellItsTime) {
  CountedDevice device(Nanos(5000));
  Stopwatch stopwatch(device, Bytes(64));
  std::int64_t calls = 0;
  EXPECT_DOUBLE_EQ(stopwatch.SecondsOfWork([&](const kernels::Queue&) { ++calls; }), 5e-6);
  EXPECT_GT(calls, 20);
  EXPECT_GT(device.works(), calls);  // what keeps the stream busy meanwhile
}

// 2 of 5 us are the launch: 3 remain. A norm reads and writes its rows and reads a width (models/network/operator.h).
TEST(Calibration, RatesAreThoseOfTheWorkWithoutItsLaunch) {
  CountedDevice device(Nanos(5000));
  const CalibrationSizes sizes = SmallSizes();
  const auto rates = MeasureRates(device, sizes, {.launch = Nanos(2000)});
  const RateCurve& norms = rates.at("norm.fp32");
  ASSERT_EQ(norms.size(), sizes.rows.size());
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const Norm op{.rows = sizes.rows[i], .width = sizes.width, .dtype = DType::fp32};
    EXPECT_EQ(norms[i].size, BytesMovedBy(op).count());
    EXPECT_DOUBLE_EQ(norms[i].per_second, FourDigits(static_cast<double>(norms[i].size) / 3e-6));
  }
  // Six products of two layers at the first point, of 5 us each: one of 32 x 32 sums over 8, whose sums are the
  // shortest.
  const double inner = 2.0 * 32 * 8 * 32, others = 2 * 2.0 * 32 * 8 * 32 + 3 * 2.0 * 32 * 8 * 8;
  EXPECT_EQ(rates.at("gemm_inner.bf16").front(), (RatePoint{8, FourDigits(inner / 3e-6)}));
  EXPECT_EQ(rates.at("gemm.bf16").front(), (RatePoint{8, FourDigits(others / 15e-6)}));
  EXPECT_EQ(rates.at("gemm_unaligned.bf16").front(), (RatePoint{8, FourDigits(3 * 2.0 * 32 * 8 * 33 / 9e-6)}));
  // Two layers of as many operations: each of their six products takes as long.
  EXPECT_EQ(rates.at("gemm_small.bf16").front(), (RatePoint{2 * 32 * 8 * 8, FourDigits(2.0 * 32 * 8 * 8 / 3e-6)}));
  // Nearly all is launch: a tenth remains.
  EXPECT_DOUBLE_EQ(MeasureRates(device, sizes, {.launch = Nanos(5000)}).at("norm.fp32")[0].per_second,
                   FourDigits(static_cast<double>(norms[0].size) / 0.5e-6));
}

// By a cache that holds the operands a kernel seems faster than memory; a product is not held back by it.
TEST(Calibration, NoKernelThatStreamsIsRatedAboveWhatMemoryMoves) {
  CountedDevice device(Nanos(5000));
  constexpr double kMost = 1e6;  // each moves 256 bytes or more in its 5 us
  const auto rates = MeasureRates(device, SmallSizes(), {.launch = Nanos(), .bytes = BytesPerSec(kMost)});
  for (const RatedKind& kind : RatedKinds()) {
    for (const RatePoint& point : rates.at(kind.key)) {
      EXPECT_TRUE(kind.arithmetic ? point.per_second > kMost : point.per_second == kMost) << kind.key;
    }
  }
}

TEST(Calibration, ALaunchIsWhatAKernelOfOneElementTakes) {
  CountedDevice device(Nanos(2500));
  const LaunchCost launch = MeasureLaunch(device, SmallSizes());
  EXPECT_EQ(launch.alone, Nanos(2500));
  EXPECT_EQ(launch.device, Nanos(2500)) << "among others, and with other operands, it takes no longer here";
  EXPECT_GT(launch.host, Nanos());
  EXPECT_DOUBLE_EQ(MeasureCopy(device, SmallSizes()).per_second(), FourDigits(2 * 4096 / 2.5e-6));
}

/// Each work takes longer behind one of another kind.
class ChangingDevice final : public CountedDevice {
 public:
  ChangingDevice(Nanos each, Nanos change) : CountedDevice(each), change_(change) {}

  void Give(std::uint32_t stream, Work work) override {
    const std::type_info* const kind = &work.target_type();
    Pass(last_ != nullptr && *last_ == *kind ? Nanos() : change_);
    last_ = kind;
    CountedDevice::Give(stream, std::move(work));
    Bytes mapped;
    memory()->ForEachMapped(
        [&](std::uint64_t begin, std::uint64_t end) { mapped += Bytes(static_cast<std::int64_t>(end - begin)); });
    most_mapped_ = std::max(most_mapped_, mapped);
  }
  Bytes most_mapped() const { return most_mapped_; }

 private:
  Nanos change_;
  Bytes most_mapped_;
  const std::type_info* last_ = nullptr;
};

// The first of a batch of 128 comes behind what keeps the stream busy.
TEST(Calibration, ALaunchAmongOthersTakesWhatTheChangeTakes) {
  ChangingDevice device(Nanos(2500), Nanos(640));
  const LaunchCost launch = MeasureLaunch(device, SmallSizes());
  EXPECT_EQ(launch.alone, Nanos(2500 + 640 / 128));
  EXPECT_NEAR(static_cast<double>((launch.device - launch.alone).count()), 640 - 640 / 128, 1);
}

// A kernel with the fewest operands moves 2 x 32 KiB, of 256 rows of 64 numbers: 64 layers of them fill a cache of 4
// MiB, and each has three such tensors, one of fp32 and a weight of 8 KiB.
TEST(Calibration, ALaunchIsMeasuredWithMoreOperandsOfEachKernelThanFitIntoACache) {
  ChangingDevice device(Nanos(2500), Nanos());
  CalibrationSizes sizes = SmallSizes();
  sizes.held = Bytes(4 << 20);
  MeasureLaunch(device, sizes);
  EXPECT_GT(device.most_mapped(), Bytes(std::int64_t{64} * (3 * 32 + 64 + 8) << 10));
}

/// Counts what leaves no trace in its memory: no kernel.
class IdleWorks final : public HostDevice {
 public:
  void Give(std::uint32_t stream, Work work) override {
    const std::vector<char> before = Numbers();
    HostDevice::Give(stream, std::move(work));
    idle_ += before == Numbers() ? 1 : 0;
    ++works_;
  }
  int idle() const { return idle_; }
  int works() const { return works_; }

 private:
  std::vector<char> Numbers() const {
    std::vector<char> numbers;
    memory()->ForEachMapped([&](std::uint64_t begin, std::uint64_t end) {
      const auto* from = reinterpret_cast<const char*>(begin);  // NOLINT(performance-no-int-to-ptr): as it counts
      numbers.insert(numbers.end(), from, from + (end - begin));
    });
    return numbers;
  }

  int idle_ = 0, works_ = 0;
};

// A factor of 1 would be no kernel, and its launch would take no time.
TEST(Calibration, ALaunchIsMeasuredOfAKernel) {
  IdleWorks device;
  MeasureLaunch(device, SmallSizes());
  EXPECT_GT(device.works(), 0);
  EXPECT_EQ(device.idle(), 0);
}

TEST(Calibration, WarmsUpForAsLongAsItIsTold) {
  CountedDevice device(Nanos(1000));
  CalibrationSizes sizes = SmallSizes();
  WarmUp(device, sizes);
  const std::int64_t made = device.works();  // its operands
  sizes.warm = Nanos(1'000'000);
  WarmUp(device, sizes);
  EXPECT_GT(device.works(), 2 * made);
}

void AddKinds(const Job& job, std::set<std::string>& keys) {
  const auto lowered = LowerRuns(job, FirstSteps(1));
  ASSERT_TRUE(lowered.ok()) << job.strategy << lowered.error().Text();
  for (const Node& node : lowered->front().program.roles.front().nodes) {
    const auto* leaf = std::get_if<Compute>(&node);
    if (const auto rated = leaf != nullptr ? WorkOf(leaf->op) : std::nullopt) {
      keys.insert(rated->key);
    }
  }
}

/// Every kind of kernel that strategies' steps have on a device, of networks in the precision of their users and in
/// fp32 where there are such.
std::set<std::string> KindsAskedFor() {
  std::set<std::string> keys;
  for (const Strategy& strategy : AllStrategies()) {
    Job job = OracleJob(strategy.defaults.name, 2);
    for (const DType params : {job.axes.precision.params, DType::fp32}) {
      job.axes.precision.params = params;
      if (strategy.Accept(job)) {
        AddKinds(job, keys);
      }
    }
  }
  return keys;
}

void ExpectAllKinds(const std::map<std::string, RateCurve>& rates, const CalibrationSizes& sizes) {
  const std::set<std::string> asked = KindsAskedFor();
  EXPECT_GT(asked.size(), 15U);
  for (const std::string& key : asked) {
    EXPECT_TRUE(rates.contains(key)) << key;
  }
  for (const RatedKind& kind : RatedKinds()) {
    ASSERT_TRUE(rates.contains(kind.key)) << kind.key;
  }
  for (const auto& [key, curve] : rates) {
    EXPECT_GE(curve.size(), sizes.rows.size()) << key;
    for (std::size_t i = 0; i < curve.size(); ++i) {
      EXPECT_TRUE(std::isfinite(curve[i].per_second) && curve[i].per_second > 0) << key;
      EXPECT_TRUE(i == 0 || curve[i - 1].size < curve[i].size) << key;
    }
  }
}

TEST(Calibration, MeasuresEveryKindOnAProcessor) {
  HostDevice device;
  ExpectAllKinds(MeasureRates(device, SmallSizes(), {}), SmallSizes());
}

/// What a GPU computes, given to streams that do nothing before they must.
TEST(Calibration, MeasuresEveryKindOnADeviceWithStreams) {
  LazyDevice device(LazyDevice::First::lowest, kernels::Queue::Kind::host);
  ExpectAllKinds(MeasureRates(device, SmallSizes(), {}), SmallSizes());
  const Link link = MeasureHostLink(device, SmallSizes());
  EXPECT_GT(link.latency, Nanos());
  EXPECT_TRUE(std::isfinite(link.bandwidth.per_second()) && link.bandwidth.per_second() > 0);
}

/// Points of equal smallest dimensions, and rising ones, whatever is measured.
// A GPU on which others have taken their part: the command says that there is not enough.
TEST(Calibration, EndsWhereOperandsFindNoRoom) {
  HostDevice device;
  Operands operands(device, Bytes(1 << 20));
  EXPECT_THROW(operands.Make(DType::fp32, 1 << 20), std::bad_alloc);
}

using Layer = CalibrationSizes::Layer;

void ExpectRising(const std::vector<std::vector<Layer>>& points, std::int64_t (*size_of)(const Layer&)) {
  std::int64_t before = 0;
  for (const auto& point : points) {
    std::set<std::int64_t> sizes;
    for (const Layer& layer : point) {
      sizes.insert(size_of(layer));
    }
    ASSERT_EQ(sizes.size(), 1U);
    EXPECT_GT(*sizes.begin(), before);
    before = *sizes.begin();
  }
}

TEST(Calibration, SizesOfCurvesRise) {
  const auto smallest = [](const Layer& layer) { return std::min({layer.rows, layer.in, layer.out}); };
  for (const CalibrationSizes& sizes : {ProcessorSizes(), GpuSizes(), SmallSizes()}) {
    ExpectRising(sizes.products, smallest);
    ExpectRising(sizes.unaligned_products, smallest);
    ExpectRising(sizes.small_products, [](const Layer& layer) { return layer.rows * layer.in * layer.out; });
    EXPECT_TRUE(std::is_sorted(sizes.rows.begin(), sizes.rows.end()));
    EXPECT_TRUE(std::is_sorted(sizes.sequences.begin(), sizes.sequences.end()));
  }
}

// What is asked of a GPU: products to 8192 with long sums too, heads of 64 and 128, sequences to 8192, and rows that
// fill more than the largest cache (126 MiB of a B200) several times.
TEST(Calibration, AGpuIsMeasuredAtTheSizesOfItsModels) {
  const CalibrationSizes gpu = GpuSizes();
  EXPECT_EQ(gpu.products.back().front(), (CalibrationSizes::Layer{8192, 8192, 8192}));
  EXPECT_EQ(gpu.small_products.front().front().rows, 8192);  // the sum of the weight gradient of a narrow layer
  for (const auto& point : gpu.unaligned_products) {
    EXPECT_EQ(point.front().out % 2, 1);  // as GPT-2's vocabulary
  }
  EXPECT_EQ(gpu.head_sizes, (std::vector<std::int64_t>{64, 128}));
  EXPECT_EQ(gpu.sequences.back(), 8192);
  EXPECT_GE(gpu.rows.back() * gpu.width * 2, std::int64_t{256} << 20);
  EXPECT_EQ(gpu.width % 64, 0);
}

}  // namespace
}  // namespace tidemark::calibrate_test
