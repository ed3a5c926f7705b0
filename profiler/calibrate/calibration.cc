// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibrate/calibration.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "kernels/queue.h"
#include "profiler/calibrate/calibrate.h"

namespace tidemark {
namespace {

constexpr std::int64_t kOne = 1;

void PutRates(Calibration& to, Device& device, const CalibrationSizes& sizes, const RateLimits& limits,
              std::string_view where) {
  for (auto& [key, curve] : MeasureRates(device, sizes, limits)) {
    to.Measured("rates." + key, to.machine().rates[key], std::move(curve),
                fmt::format("kernels of this kind on {}", where));
  }
}

std::string PeakWords(const CalibrationSizes& sizes, std::string_view where) {
  return fmt::format("products of {0} x {0} matrices on {1}", sizes.peak.rows, where);
}

void PutPeaks(Calibration& to, const std::map<DType, FlopsPerSec>& peaks, std::string_view what) {
  Machine& machine = to.machine();
  for (const auto& [dtype, sheet] : std::exchange(machine.peak, {})) {
    machine.sources.erase(fmt::format("peak.{}", Name(dtype)));
  }
  for (const auto& [dtype, peak] : peaks) {
    to.Measured(fmt::format("peak.{}", Name(dtype)), machine.peak[dtype], peak, what);
  }
}

std::map<DType, FlopsPerSec> MeasurePeaks(Device& device, const CalibrationSizes& sizes) {
  std::map<DType, FlopsPerSec> peaks;
  for (const DType dtype : sizes.peak_dtypes) {
    peaks[dtype] = MeasureProducts(device, sizes, dtype);
  }
  return peaks;
}

/// The fraction of the sheet's value that was reached, as a machine file takes it.
double Fraction(double reached, double of) { return std::clamp(reached / of, 0.01, 1.0); }

/// Peaks and bandwidth of NVIDIA's sheet stay, for they say how well hardware is used; what was reached of them is the
/// fraction. Without a sheet they are what was reached, all of it.
void PutReached(Calibration& to, const std::map<DType, FlopsPerSec>& peaks, BytesPerSec copy,
                const CalibrationSizes& sizes, bool has_sheet) {
  Machine& machine = to.machine();
  const std::string products = PeakWords(sizes, "the GPU"), copies = "a copy within the GPU's memory";
  if (has_sheet) {
    to.Measured("achievable_flops", machine.achievable_flops,
                Fraction(peaks.at(DType::bf16).per_second(), machine.peak.at(DType::bf16).per_second()),
                fmt::format("bf16 {}, of peak.bf16", products));
    to.Measured("achievable_bandwidth", machine.achievable_bandwidth,
                Fraction(copy.per_second(), machine.memory_bandwidth.per_second()),
                fmt::format("{}, of memory_bandwidth", copies));
    return;
  }
  PutPeaks(to, peaks, products + "; there is no preset with this GPU's sheet");
  to.Measured("memory_bandwidth", machine.memory_bandwidth, copy, copies);
  to.Known("achievable_flops", machine.achievable_flops, 1.0, "the peaks are those that were reached");
  to.Known("achievable_bandwidth", machine.achievable_bandwidth, 1.0, "the bandwidth is the one that was reached");
}

/// Of one key of a description, where the driver told it.
template <class T>
void PutTold(Calibration& to, const std::string& key, T& member, const T& told, std::string_view by) {
  if (told != T()) {
    to.Known(key, member, told, by);
  } else {
    member = T();
    to.machine().sources.erase(key);
  }
}

void PutDescription(Calibration& to, const GpuDescription& gpu) {
  constexpr std::string_view kNvml = "NVML", kCurrent = "NVML, right after the measurements",
                             kMost = "the driver: the most that this GPU takes", kRuntime = "the CUDA runtime";
  Machine& machine = to.machine();
  PutTold(to, "device", machine.device, gpu.name, kRuntime);
  PutTold(to, "driver", machine.driver, gpu.driver, kNvml);
  PutTold(to, "cuda", machine.cuda, gpu.cuda, "the CUDA runtime in this program");
  PutTold(to, "clocks.sm_mhz", machine.clocks.sm_mhz, gpu.clocks.sm_mhz, kCurrent);
  PutTold(to, "clocks.sm_max_mhz", machine.clocks.sm_max_mhz, gpu.clocks.sm_max_mhz, kMost);
  PutTold(to, "clocks.memory_mhz", machine.clocks.memory_mhz, gpu.clocks.memory_mhz, kCurrent);
  PutTold(to, "clocks.memory_max_mhz", machine.clocks.memory_max_mhz, gpu.clocks.memory_max_mhz, kMost);
  to.Known("device_memory", machine.device_memory, gpu.memory, kRuntime);
  to.Known("processors", machine.processors, gpu.processors, kRuntime);
}

/// What the driver counts on the whole GPU, less what it counted before: of this process, as long as others stand
/// still.
void PutContext(Calibration& to, const GpuUnderCalibration& gpu, const GpuDescription& now) {
  if (!gpu.before.used || !gpu.opened.used || !now.used) {
    return;
  }
  const Bytes alone = std::max(*gpu.opened.used - *gpu.before.used, Bytes());
  const Bytes loaded = std::max(*now.used - *gpu.before.used - Bytes(kernels::Queue::kWorkspaceBytes), alone);
  Band& context = to.machine().context;
  to.Measured("context.low", context.low, alone, "the driver's count around the making of a context");
  to.Measured("context.expected", context.expected, loaded,
              "the same when every kind of kernel had run, less the workspace");
  to.Measured("context.high", context.high, loaded, "as context.expected");
}

}  // namespace

Calibration::Calibration(Machine base, std::string how, const std::string& day)
    : machine_(std::move(base)), how_(std::move(how)) {
  for (auto& [key, source] : machine_.sources) {
    source = fmt::format("not measured: as in {} ({})", machine_.name, source);
  }
  Known("measured_on", machine_.measured_on, day, "this machine's clock");
}

void CalibrateProcessor(Calibration& to, Device& device, const CalibrationSizes& sizes, std::int64_t cores,
                        Bytes memory) {
  Machine& machine = to.machine();
  to.Measured("devices_per_node", machine.devices_per_node, cores, "cores, each a device with a rank");
  to.Measured("device_memory", machine.device_memory, memory / cores,
              "the machine's memory in equal parts for its cores");
  to.Known("processors", machine.processors, kOne, "the executor's kernels run on one thread");
  to.Known("tile_m", machine.tile_m, kOne, "rates.gemm has the shapes");
  to.Known("tile_n", machine.tile_n, kOne, "rates.gemm has the shapes");
  to.Known("achievable_flops", machine.achievable_flops, 1.0, "the rates are those that were reached");
  to.Known("achievable_bandwidth", machine.achievable_bandwidth, 1.0, "the bandwidth is the one that was reached");
  to.Known("host_issue", machine.host_issue, Nanos(0), "the thread that issues kernels runs them: see kernel_launch");
  to.Known("overlap", machine.overlap, false,
           "all streams of a rank take turns on its thread, and MPI moves messages while it waits for them");
  to.Known("overlap_slowdown", machine.overlap_slowdown, 1.0, "kernels and collectives take turns");
  PutPeaks(to, MeasurePeaks(device, sizes), PeakWords(sizes, "one thread"));
  PutRates(to, device, sizes, {.launch = Nanos()}, "one thread");
  const BytesPerSec copy = MeasureCopy(device, sizes);
  constexpr std::string_view kCopy = "a copy of 256 MiB by one thread";
  to.Measured("memory_bandwidth", machine.memory_bandwidth, copy, kCopy);
  to.Measured("host_link.bandwidth", machine.host_link.bandwidth, copy * 0.5, kCopy);
  to.Measured("host_memory_bandwidth", machine.host_memory_bandwidth, copy, kCopy);
  to.Measured("host_flops", machine.host_flops, machine.peak[DType::fp32], "as peak.fp32");
}

void CalibrateGpu(Calibration& to, Device& device, const CalibrationSizes& sizes, const GpuUnderCalibration& gpu) {
  Machine& machine = to.machine();
  to.Known("accelerator", machine.accelerator, true, "what it is");
  WarmUp(device, sizes);
  const LaunchCost launch = MeasureLaunch(device, sizes);
  to.Measured(
      "kernel_launch", machine.kernel_launch, launch.device,
      fmt::format(
          "a kernel of one element behind another, {} ns, and what a layer's kernels take more behind others, and with "
          "operands from memory; the host takes {} ns to launch it",
          launch.alone.count(), launch.host.count()));
  const BytesPerSec copy = MeasureCopy(device, sizes);
  PutRates(to, device, sizes, {.launch = launch.alone, .bytes = copy}, "one stream");
  PutReached(to, MeasurePeaks(device, sizes), copy, sizes, gpu.has_sheet);
  const GpuDescription now = gpu.describe();
  PutDescription(to, now);
  const Link host = MeasureHostLink(device, sizes);
  to.Measured("host_link.latency", machine.host_link.latency, host.latency, "copies of 4 bytes from pinned memory");
  to.Measured("host_link.bandwidth", machine.host_link.bandwidth, host.bandwidth,
              "copies from pinned memory to the GPU and back");
  to.Known("workspace", machine.workspace, Bytes(kernels::Queue::kWorkspaceBytes),
           "what the executor gives cuBLASLt on a stream");
  to.Known("overlap", machine.overlap, true, "streams of a GPU");
  PutContext(to, gpu, now);
  if (gpu.link) {
    to.Known("devices_per_node", machine.devices_per_node, gpu.gpus, "the GPUs that this process sees");
    to.Measured("intra_node.latency", machine.intra_node.latency, gpu.link->latency,
                "a step of an exchange between GPUs");
    to.Measured("intra_node.bandwidth", machine.intra_node.bandwidth, gpu.link->bandwidth,
                "exchanges between GPUs, over their number of bytes sent");
  }
  if (gpu.communicator) {
    to.Measured("communicator", machine.communicator, *gpu.communicator,
                "the driver's count around the making of a communicator and its exchanges");
  }
}

}  // namespace tidemark
