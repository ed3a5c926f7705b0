// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/execution.h"
#include "cli/launch.h"
#include "cli/options.h"
#include "cli/strategies.h"
#include "cli/write_file.h"
#include "models/configs/field.h"
#include "models/job/read.h"
#include "models/machine/presets.h"
#include "models/machine/rates.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/execute/run.h"
#include "sim/predict/steps.h"

namespace tidemark {
namespace {

/// Small enough for a second, and large enough that what surrounds its kernels is what surrounds those of a small
/// model.
constexpr const char* kJob = R"(
network: {layers: 2, hidden: 192, ffn: 768, heads: 4, kv_heads: 4, vocabulary: 1536}
machine: cpu
sequence_length: 128
micro_batch_size: 4
accumulation_steps: 2
strategy: ddp-last
)";

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

Result<Job> CalibrationJob(std::int64_t ranks) {
  return ParseJob(kJob, "calibration", {.set = {fmt::format("layout.dp={}", ranks)}, .format = {}}, KnownStrategies());
}

Result<Nanos> MeasureAroundKernels() {
  TIDEMARK_ASSIGN(const Job job, CalibrationJob(1));
  TIDEMARK_ASSIGN(const std::vector<LoweredRun> lowered, LowerRuns(job, FirstSteps(3)));
  std::vector<RunStep> steps;
  for (const LoweredRun& run : lowered) {
    steps.insert(steps.end(), static_cast<std::size_t>(run.run.count), {&run.program, std::string(Name(run.run.kind))});
  }
  std::vector<Nanos> measured;
  for (int i = 0; i < 5; ++i) {
    const auto alone = MakeSingleWorld();
    TIDEMARK_ASSIGN(const RunOutcome outcome, RunSteps(job, steps, {}, *alone));
    measured.push_back(TimeAroundKernels(outcome.trace));
  }
  return *std::min_element(measured.begin(), measured.end());
}

class Calibration {
 public:
  Calibration(Machine preset, std::string how) : machine_(std::move(preset)), how_(std::move(how)) {
    for (auto& [key, source] : machine_.sources) {
      source = fmt::format("not measured: as in {} ({})", machine_.name, source);
    }
  }

  /// `member` of the machine is now `value`, by measurement.
  template <class T>
  void Measured(const std::string& key, T& member, T value, std::string_view what) {
    member = value;
    machine_.sources[key] = fmt::format("measured: {}; {}", what, how_);
  }
  /// Not measured, but so by what the executor is.
  template <class T>
  void Known(const std::string& key, T& member, T value, std::string_view why) {
    member = value;
    machine_.sources[key] = why;
  }

  Machine& machine() { return machine_; }

 private:
  Machine machine_;
  std::string how_;
};

void PutKernels(Calibration& to) {
  Machine& machine = to.machine();
  machine.peak.clear();
  for (const char* dtype : {"bf16", "fp16", "fp32", "fp64"}) {
    machine.sources.erase(fmt::format("peak.{}", dtype));
  }
  for (const DType dtype : {DType::bf16, DType::fp32, DType::fp64}) {
    to.Measured(fmt::format("peak.{}", Name(dtype)), machine.peak[dtype], MeasureProducts(dtype),
                "products of 512 x 512 matrices on one thread");
  }
  for (auto& [key, curve] : MeasureRates()) {
    to.Measured("rates." + key, machine.rates[key], std::move(curve), "kernels of this kind on one thread");
  }
  const BytesPerSec copy = MeasureCopy();
  to.Measured("memory_bandwidth", machine.memory_bandwidth, copy, "a copy of 256 MiB by one thread");
  to.Measured("host_link.bandwidth", machine.host_link.bandwidth, copy * 0.5, "a copy of 256 MiB by one thread");
  to.Measured("host_memory_bandwidth", machine.host_memory_bandwidth, copy, "a copy of 256 MiB by one thread");
  to.Measured("host_flops", machine.host_flops, machine.peak[DType::fp32], "as peak.fp32");
}

void PutWhatIsKnown(Calibration& to) {
  Machine& machine = to.machine();
  const std::int64_t cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  const Bytes memory(static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE));
  to.Measured("devices_per_node", machine.devices_per_node, cores, "cores, each a device with a rank");
  to.Measured("device_memory", machine.device_memory, memory / cores,
              "the machine's memory in equal parts for its cores");
  const std::int64_t one = 1;
  to.Known("processors", machine.processors, one, "the executor's kernels run on one thread");
  to.Known("tile_m", machine.tile_m, one, "rates.gemm has the shapes");
  to.Known("tile_n", machine.tile_n, one, "rates.gemm has the shapes");
  to.Known("achievable_flops", machine.achievable_flops, 1.0, "the rates are those that were reached");
  to.Known("achievable_bandwidth", machine.achievable_bandwidth, 1.0, "the bandwidth is the one that was reached");
  to.Known("host_issue", machine.host_issue, Nanos(0), "the thread that issues kernels runs them: see kernel_launch");
  to.Known("overlap", machine.overlap, false,
           "all streams of a rank take turns on its thread, and MPI moves messages while it waits for them");
  to.Known("overlap_slowdown", machine.overlap_slowdown, 1.0, "kernels and collectives take turns");
}

std::string FileOf(const Machine& machine, std::string_view summary) {
  std::string text = fmt::format("summary: {}\n", QuoteYaml(summary));
  for (const auto& [key, value] : MachineYaml(machine)) {
    text += fmt::format("{}: {}\n", key, value);
  }
  return text;
}

/// More is running than this, by the average of the last minute.
void WarnWhereBusy() {
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  double load = 0;
  if (getloadavg(&load, 1) == 1 && load > 1.2 * cores) {
    std::fprintf(
        stderr,
        "warning: this machine was busy in the last minute (%.1f processes wanted its %.0f cores): the rates may "
        "be too low; calibrate again when nothing else runs\n",
        load, cores);
  }
}

class CalibrateCommand : public Command {
 public:
  std::string_view name() const override { return "calibrate"; }
  std::string_view summary() const override { return "Measures this machine, for predictions of runs on it"; }
  std::string_view examples() const override {
    return "  tidemark calibrate --device cpu -o machine.yaml       kernels by kind and size, memory, exchanges of two "
           "ranks\n"
           "  tidemark compare job.yaml --device cpu --set machine=machine.yaml\n"
           "                                                        then predicts this machine's times\n"
           "\n"
           "It takes half a minute to a minute. What else runs meanwhile makes the numbers worse: let nothing else "
           "run. The file "
           "says\n"
           "where each number comes from, and which ones are not measured but taken from the preset cpu. Exit code 3: "
           "there\n"
           "is no MPI to measure exchanges with.\n";
  }

  void Setup(CLI::App& app) override {
    AddDeviceOption(app, device_);
    app.add_option("-o,--output", path_, "the machine file to write; - is stdout")->type_name("FILE")->required();
  }

  Result<int> Run() override {
    TIDEMARK_TRY(CheckDevice(device_));
    if (device_ == "cuda") {
      return Error{ErrorCode::machine_cannot, "", "--device cuda: GPUs are not calibrated yet",
                   "tidemark list machines names presets of GPUs, each number with its source"};
    }
    TIDEMARK_TRY(CheckWritable(path_));
    TIDEMARK_ASSIGN(const Job two_ranks, CalibrationJob(2));
    TIDEMARK_ASSIGN(Entered place, EnterWorld(two_ranks, {}));
    if (place.world == nullptr) {
      return place.exit_code;
    }
    World& world = *place.world;
    TIDEMARK_ASSIGN(const Link link, MeasureLink(world));
    Status done = Done{};
    if (world.rank() == 0) {
      done = MeasureAndWrite(link);
    }
    world.Sum(0);  // the other one waits
    if (place.link) {
      place.link->progress().Enter(done ? RankProgress::State::ended : RankProgress::State::failed);
    }
    return done ? Result<int>(0) : Result<int>(done.error());
  }

 private:
  Status MeasureAndWrite(const Link& link) const {
    WarnWhereBusy();
    TIDEMARK_ASSIGN(Machine preset, FindMachine("cpu", {}));
    const std::string how =
        fmt::format("{}, {:%Y-%m-%d}, tidemark {}", ProcessorName(), fmt::gmtime(std::time(nullptr)), TIDEMARK_VERSION);
    Calibration calibration(std::move(preset), how);
    Machine& machine = calibration.machine();
    machine.name = path_ == "-" ? "calibrated" : std::filesystem::path(path_).stem().string();
    PutWhatIsKnown(calibration);
    PutKernels(calibration);
    TIDEMARK_ASSIGN(const Nanos around, MeasureAroundKernels());
    calibration.Measured("kernel_launch", machine.kernel_launch, around,
                         "what the executor takes around a kernel of a small model");
    calibration.Measured("intra_node.latency", machine.intra_node.latency, link.latency,
                         "a step of an exchange between two ranks");
    calibration.Measured("intra_node.bandwidth", machine.intra_node.bandwidth, link.bandwidth,
                         "exchanges of 1 and 2 MiB between two ranks, over their number of bytes sent");
    TIDEMARK_TRY(WriteFile(path_, FileOf(machine, fmt::format("Measured: {}", how))));
    return path_ == "-" ? Status(Done{}) : WriteOut(Told(machine));
  }

  std::string Told(const Machine& machine) const {
    return fmt::format(
        "{}: {}\n  products     bf16 {}, fp32 {}\n  memory       {}\n  around one   {}\n"
        "  two ranks    {}, {}\n",
        path_, ProcessorName(), Text(machine.peak.at(DType::bf16)), Text(machine.peak.at(DType::fp32)),
        Text(machine.memory_bandwidth), Text(machine.kernel_launch), Text(machine.intra_node.latency),
        Text(machine.intra_node.bandwidth));
  }

  std::string device_, path_;
};

}  // namespace

std::unique_ptr<Command> CmdCalibrate() { return std::make_unique<CalibrateCommand>(); }

}  // namespace tidemark
