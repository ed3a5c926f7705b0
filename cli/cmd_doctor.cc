// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "kernels/blas.h"
#include "profiler/capture/gpu_capture.h"
#include "profiler/comm/nccl.h"
#include "profiler/device/gpu_description.h"
#include "profiler/device/probe.h"

namespace tidemark {
namespace {

/// A library that is looked for when a GPU is used.
struct GpuLibrary {
  std::string_view name, purpose;
  Result<std::string> version;  ///< or why there is none, and what to install
};

/// What this machine has of what tidemark can use.
struct Findings {
  unsigned cores = 0;
  Bytes memory;
  std::string mpirun;  ///< its path; empty: not found
  DeviceProbe devices;
  std::string driver;  ///< NVIDIA's own number for it, "580.65.06"; empty: not told
  std::vector<GpuLibrary> libraries;
};

/// Where a program would be started from; empty when PATH has no such program.
std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path candidate = std::filesystem::path(folder) / name;
    if (::access(candidate.c_str(), X_OK) == 0) {
      return candidate.string();
    }
  }
  return {};
}

Findings Examine() {
  const std::int64_t n_bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  Findings found{std::thread::hardware_concurrency(), Bytes(n_bytes), FindProgram("mpirun"), ProbeDevices(), {}, {}};
  found.driver = found.devices.devices.empty() ? "" : DescribeGpu(0).driver;
  found.libraries = {{"cuBLASLt", "products of matrices", kernels::cuda::CublasLtVersion()},
                     {"NCCL", "exchanges between GPUs", NcclVersion()},
                     {"CUPTI", "records of what a GPU does", CuptiVersion()}};
  return found;
}

std::string CudaVersion(int version) {
  return version == 0 ? "none" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// The reason, and what to install where that is known.
std::string WhyMissing(const Error& error) {
  return error.hint.empty() ? error.message : fmt::format("{}; {}", error.message, error.hint);
}

std::string AsText(const Findings& found) {
  std::string text = fmt::format("cores     {}\nmemory    {}\n", found.cores, Text(found.memory));
  text += fmt::format("MPI       {}\n", found.mpirun.empty() ? "not found: mpirun is not on the PATH" : found.mpirun);
  text += fmt::format("CUDA      runtime {}, driver {}{}\n", CudaVersion(found.devices.runtime_version),
                      CudaVersion(found.devices.driver_version),
                      found.driver.empty() ? "" : fmt::format(" ({})", found.driver));
  for (const GpuLibrary& library : found.libraries) {
    text += fmt::format("{:<8}  {}\n", library.name,
                        library.version ? fmt::format("{}, for {}", *library.version, library.purpose)
                                        : fmt::format("none: {}", WhyMissing(library.version.error())));
  }
  for (const ProbedDevice& device : found.devices.devices) {
    text += fmt::format("GPU       {}, {}, compute capability {}.{}\n", device.name, Text(device.memory),
                        device.compute_major, device.compute_minor);
  }
  if (found.devices.devices.empty()) {
    text += fmt::format("GPU       none: {}\n", found.devices.reason);
  }
  text += "\nPredictions need none of these.\n";
  return text;
}

std::string AsMarkdown(const Findings& found) {
  std::string text = "| what | here |\n|---|---|\n";
  text += fmt::format("| cores | {} |\n| memory | {} |\n| MPI | {} |\n", found.cores, Text(found.memory),
                      found.mpirun.empty() ? "not found" : found.mpirun);
  text += fmt::format("| CUDA runtime | {} |\n| CUDA driver | {} |\n", CudaVersion(found.devices.runtime_version),
                      CudaVersion(found.devices.driver_version));
  for (const GpuLibrary& library : found.libraries) {
    text += fmt::format("| {} | {} |\n", library.name, library.version ? *library.version : "none");
  }
  for (const ProbedDevice& device : found.devices.devices) {
    text += fmt::format("| GPU | {}, {} |\n", device.name, Text(device.memory));
  }
  if (found.devices.devices.empty()) {
    text += fmt::format("| GPU | none: {} |\n", found.devices.reason);
  }
  return text;
}

std::string AsJson(const Findings& found) {
  nlohmann::ordered_json json;
  json["cores"] = found.cores;
  json["memory_bytes"] = found.memory.count();
  json["mpirun"] = found.mpirun.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(found.mpirun);
  json["cuda"] = {{"runtime_version", found.devices.runtime_version}, {"driver_version", found.devices.driver_version}};
  json["driver"] = found.driver.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(found.driver);
  json["libraries"] = nlohmann::ordered_json::array();
  for (const GpuLibrary& library : found.libraries) {
    const bool is_there = library.version.ok();
    json["libraries"].push_back(
        {{"name", library.name},
         {"version", is_there ? nlohmann::ordered_json(*library.version) : nlohmann::ordered_json()},
         {"missing_because", is_there ? "" : library.version.error().message},
         {"hint", is_there ? "" : library.version.error().hint}});
  }
  json["gpus"] = nlohmann::ordered_json::array();
  for (const ProbedDevice& device : found.devices.devices) {
    json["gpus"].push_back({{"name", device.name},
                            {"memory_bytes", device.memory.count()},
                            {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)}});
  }
  json["gpus_missing_because"] = found.devices.reason;
  return json.dump(2) + "\n";
}

class DoctorCommand : public Command {
 public:
  std::string_view name() const override { return "doctor"; }
  std::string_view summary() const override {
    return "Say what this machine can do: cores, memory, MPI, GPUs and their libraries";
  }
  std::string_view examples() const override {
    return "  tidemark doctor                     what there is\n"
           "  tidemark doctor --require cuda      exit with 3 where no GPU can be used\n";
  }

  void Setup(CLI::App& app) override {
    app.add_option("--require", required_, "cuda or mpi: fail where it is missing (any number of times)")
        ->check(CLI::IsMember({"cuda", "mpi"}).description(""))
        ->expected(1)
        ->take_all();
    AddFormatOption(app, format_);
  }

  Result<int> Run() override {
    const Findings found = Examine();
    TIDEMARK_TRY(WriteOut(format_ == OutputFormat::json       ? AsJson(found)
                          : format_ == OutputFormat::markdown ? AsMarkdown(found)
                                                              : AsText(found)));
    for (const std::string& what : required_) {
      if (what == "cuda" && found.devices.devices.empty()) {
        return Error{ErrorCode::machine_cannot, "cuda", found.devices.reason, {}};
      }
      if (what == "mpi" && found.mpirun.empty()) {
        return Error{ErrorCode::machine_cannot, "mpi", "mpirun is not on the PATH",
                     "install Open MPI (Debian: openmpi-bin)"};
      }
    }
    return 0;
  }

 private:
  std::vector<std::string> required_;
  OutputFormat format_ = OutputFormat::text;
};

}  // namespace

std::unique_ptr<Command> CmdDoctor() { return std::make_unique<DoctorCommand>(); }

}  // namespace tidemark
