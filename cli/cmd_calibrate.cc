// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/execution.h"
#include "cli/launch.h"
#include "cli/opened_device.h"
#include "cli/options.h"
#include "cli/write_file.h"
#include "models/configs/field.h"
#include "models/job/read.h"
#include "models/machine/presets.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/calibrate/calibration.h"
#include "profiler/calibrate/sizes.h"
#include "profiler/comm/communicator.h"
#include "profiler/comm/nccl.h"
#include "profiler/device/gpu_description.h"
#include "profiler/device/host_device.h"
#include "profiler/device/probe.h"
#include "profiler/execute/run.h"
#include "sim/predict/steps.h"
#include "sim/strategies/strategy.h"

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
/// Whose links, host and tiles a GPU without a preset of its own is taken to have.
constexpr const char* kOtherGpu = "h100-sxm-80gb";

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

/// What a small model's run is asked.
struct Question {
  std::function<std::int64_t(const Trace&)> ask;
  bool time_work = true;
  int runs = 5;  ///< of which the least answer counts
};

/// In a world of one rank on a device; none: the processor.
Result<std::int64_t> LeastOfRuns(World& alone, Device* device, const Question& question) {
  TIDEMARK_ASSIGN(const Job job, CalibrationJob(1));
  constexpr std::int64_t kSteps = 4;  // the last one's program has run before: it takes the time of its work alone
  TIDEMARK_ASSIGN(const std::vector<LoweredRun> lowered, LowerRuns(job, FirstSteps(kSteps)));
  std::vector<RunStep> steps;
  for (const LoweredRun& run : lowered) {
    steps.insert(steps.end(), static_cast<std::size_t>(run.run.count), {&run.program, std::string(Name(run.run.kind))});
  }
  TIDEMARK_CHECK(steps.size() == kSteps && steps.back().program == steps[kSteps - 2].program);
  std::vector<std::int64_t> answers;
  for (int i = 0; i < question.runs; ++i) {
    RunOptions options;
    options.device = device;
    options.time_work = question.time_work;
    TIDEMARK_ASSIGN(const RunOutcome outcome, RunSteps(job, steps, options, alone));
    answers.push_back(question.ask(outcome.trace));
  }
  return *std::min_element(answers.begin(), answers.end());
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

Calibration Begin(Machine base, const std::string& device) {
  const std::string day = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  return {std::move(base), fmt::format("{}, {}, tidemark {}", device, day, TIDEMARK_VERSION), day};
}

/// On rank 0, of two.
Result<Calibration> MeasureProcessor(const Link& link) {
  WarnWhereBusy();
  TIDEMARK_ASSIGN(Machine preset, FindMachine("cpu", {}));
  Calibration calibration = Begin(std::move(preset), ProcessorName());
  Machine& machine = calibration.machine();
  HostDevice device;
  calibration.Known("device", machine.device, ProcessorName(), "/proc/cpuinfo");
  CalibrateProcessor(calibration, device, ProcessorSizes(), std::max(1U, std::thread::hardware_concurrency()),
                     Bytes(static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE)));
  const auto alone = MakeSingleWorld();
  TIDEMARK_ASSIGN(const std::int64_t around,
                  LeastOfRuns(*alone, nullptr, {[](const Trace& trace) { return TimeAroundKernels(trace).count(); }}));
  calibration.Measured("kernel_launch", machine.kernel_launch, Nanos(around),
                       "what the executor takes around a kernel of a small model");
  calibration.Measured("intra_node.latency", machine.intra_node.latency, link.latency,
                       "a step of an exchange between two ranks");
  calibration.Measured("intra_node.bandwidth", machine.intra_node.bandwidth, link.bandwidth,
                       "exchanges of 1 and 2 MiB between two ranks, over their number of bytes sent");
  return calibration;
}

/// On rank 0, which has the GPU of this number.
Result<Calibration> MeasureGpu(Device& device, int number, GpuUnderCalibration gpu) {
  WarnWhereBusy();
  const CalibrationSizes sizes = GpuSizes();
  if (gpu.opened.used && gpu.opened.memory - *gpu.opened.used < sizes.memory) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("calibration needs {} of a GPU's memory, and of {} {} are in use", Text(sizes.memory),
                             Text(gpu.opened.memory), Text(*gpu.opened.used)),
                 "let nothing else run on the GPU"};
  }
  std::optional<Machine> base = FindMachineOfDevice(gpu.opened.name);
  gpu.has_sheet = base.has_value();
  if (!base) {
    std::fprintf(stderr, "no preset is of %s: what is not measured is that of %s\n", gpu.opened.name.c_str(),
                 kOtherGpu);
    TIDEMARK_ASSIGN(base, FindMachine(kOtherGpu, {}));
  }
  Calibration calibration = Begin(*std::move(base), gpu.opened.name);
  CalibrateGpu(calibration, device, sizes, gpu);
  const auto alone = MakeSingleWorld();
  TIDEMARK_ASSIGN(const auto on_gpu, OpenNcclWorld(*alone, {.gpu = number}));
  TIDEMARK_ASSIGN(const std::int64_t operations, LeastOfRuns(*on_gpu, &device, {OperationsOf, true, 1}));
  const auto issue_time = [operations](const Trace& trace) { return TimeToIssue(trace, operations).count(); };
  TIDEMARK_ASSIGN(const std::int64_t issue, LeastOfRuns(*on_gpu, &device, {issue_time, false}));
  calibration.Measured("host_issue", calibration.machine().host_issue, Nanos(issue),
                       "what the executor takes to issue an operation of a small model whose work nobody times");
  return calibration;
}

class CalibrateCommand : public Command {
 public:
  std::string_view name() const override { return "calibrate"; }
  std::string_view summary() const override { return "Measures this machine, for predictions of runs on it"; }
  std::string_view examples() const override {
    return "  tidemark calibrate --device cpu -o machine.yaml       kernels by kind and size, memory, exchanges of two "
           "ranks\n"
           "  tidemark calibrate --device cuda -o machine.yaml      the same of a GPU, launches, its context, copies "
           "from\n"
           "                                                        the host, and exchanges between all GPUs here\n"
           "  tidemark compare job.yaml --device cpu --set machine=machine.yaml\n"
           "                                                        then predicts this machine's times\n"
           "\n"
           "It takes half a minute to a minute. What else runs meanwhile makes the numbers worse: let nothing else "
           "run. The file says\n"
           "where each number comes from, and which ones are not measured but taken from a preset: cpu, or the GPU's "
           "own. Exit\n"
           "code 3: there is no GPU, or no MPI to measure exchanges with.\n";
  }

  void Setup(CLI::App& app) override {
    AddDeviceOption(app, device_);
    app.add_option("-o,--output", path_, "the machine file to write; - is stdout")->type_name("FILE")->required();
  }

  Result<int> Run() override {
    TIDEMARK_TRY(CheckDevice(device_));
    TIDEMARK_TRY(CheckWritable(path_));
    const bool on_gpus = device_ == kCuda;
    TIDEMARK_ASSIGN(const Job ranks, CalibrationJob(on_gpus ? std::ssize(ProbeDevices().devices) : 2));
    TIDEMARK_ASSIGN(Entered place, EnterWorld(ranks, {}));
    if (place.world == nullptr) {
      return place.exit_code;
    }
    if (const Status done = Measure(*place.world, on_gpus); !done) {
      EndTogether(place, done.error());
      return done.error();
    }
    place.link->progress().Enter(RankProgress::State::ended);
    return 0;
  }

 private:
  Status Measure(World& world, bool on_gpus) const {
    try {
      return on_gpus ? OnGpus(world) : OnProcessor(world);
    } catch (const std::bad_alloc&) {
      return Error{ErrorCode::machine_cannot, "", "there is not enough memory to measure with",
                   "let nothing else run meanwhile"};
    }
  }

  Status OnProcessor(World& world) const {
    HostDevice device;
    TIDEMARK_ASSIGN(const auto group, world.Split(0));
    TIDEMARK_ASSIGN(const Link link, MeasureLink(world, *group, device, ProcessorSizes()));
    Status done = Done{};
    if (world.rank() == 0) {
      done = Write(MeasureProcessor(link));
    }
    world.Sum(0);  // the other one waits
    return done;
  }

  Status OnGpus(World& boot) const {
    TIDEMARK_ASSIGN(const int number, GpuOfThisRank());
    GpuUnderCalibration gpu;
    gpu.gpus = boot.size();
    gpu.before = DescribeGpu(number);
    TIDEMARK_ASSIGN(const Gpus gpus, OpenGpus(boot, number));
    gpu.opened = DescribeGpu(number);
    gpu.describe = [number] { return DescribeGpu(number); };
    if (World& world = *gpus.world; world.size() > 1) {
      TIDEMARK_ASSIGN(const auto group, world.Split(0));
      TIDEMARK_ASSIGN(gpu.link, MeasureLink(world, *group, *gpus.device, GpuSizes()));
      if (const GpuDescription now = DescribeGpu(number); now.used && gpu.opened.used) {
        const Bytes workspace = gpus.device->books().workspace;  // that the operands' first kernel took
        gpu.communicator = std::max(*now.used - *gpu.opened.used - workspace, Bytes());
      }
    }
    Status done = Done{};
    if (boot.rank() == 0) {
      done = Write(MeasureGpu(*gpus.device, number, gpu));
    }
    boot.Sum(0);  // the others wait
    return done;
  }

  Status Write(Result<Calibration> measured) const {
    TIDEMARK_TRY(measured);
    Machine& machine = measured->machine();
    machine.name = path_ == "-" ? "calibrated" : std::filesystem::path(path_).stem().string();
    TIDEMARK_TRY(WriteFile(path_, FileOf(machine, fmt::format("Measured: {}", measured->how()))));
    return path_ == "-" ? Status(Done{}) : WriteOut(device_ == kCuda ? ToldOfGpu(machine) : ToldOfProcessor(machine));
  }

  std::string ToldOfProcessor(const Machine& machine) const {
    return fmt::format(
        "{}: {}\n  products     bf16 {}, fp32 {}\n  memory       {}\n  around one   {}\n"
        "  two ranks    {}, {}\n",
        path_, machine.device, Text(machine.peak.at(DType::bf16)), Text(machine.peak.at(DType::fp32)),
        Text(machine.memory_bandwidth), Text(machine.kernel_launch), Text(machine.intra_node.latency),
        Text(machine.intra_node.bandwidth));
  }

  std::string ToldOfGpu(const Machine& machine) const {
    const FlopsPerSec products = machine.peak.at(DType::bf16) * machine.achievable_flops;
    const BytesPerSec copies = machine.memory_bandwidth * machine.achievable_bandwidth;
    const Link& link = machine.intra_node;
    const bool measured = machine.sources.at("intra_node.bandwidth").starts_with("measured");
    return fmt::format(
        "{}: {}\n  products     bf16 {}\n  memory       {}\n  launch       {}, {} of the host\n  host         {}, {}\n"
        "  GPUs         {}, {}{}\n  context      {}\n",
        path_, machine.device, Text(products), Text(copies), Text(machine.kernel_launch), Text(machine.host_issue),
        Text(machine.host_link.latency), Text(machine.host_link.bandwidth), Text(link.latency), Text(link.bandwidth),
        measured ? "" : " (not measured: there is one GPU here)", Text(machine.context.expected));
  }

  std::string device_, path_;
};

}  // namespace

std::unique_ptr<Command> CmdCalibrate() { return std::make_unique<CalibrateCommand>(); }

}  // namespace tidemark
