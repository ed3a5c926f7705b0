// SPDX-License-Identifier: Apache-2.0
#include "cli/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLargestCommandLine = 1 << 20;

/// This process's own command line, by which mpirun starts it again.
Result<std::vector<std::string>> OwnArguments() {
  TIDEMARK_ASSIGN(const std::string bytes, ReadBinaryFile("/proc/self/cmdline", kLargestCommandLine));
  std::vector<std::string> arguments;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = bytes.find('\0', at);
    arguments.push_back(bytes.substr(at, end - at));
    at = end == std::string::npos ? bytes.size() : end + 1;
  }
  std::string program(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size());
  if (length > 0 && !arguments.empty()) {
    arguments.front() = program.substr(0, static_cast<std::size_t>(length));
  }
  return arguments;
}

/// More ranks than cores yield to each other while they wait, up to a number that a machine bears.
Error BecomeMpirun(std::int64_t ranks) {
  constexpr std::int64_t kRanksPerCore = 16;
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  if (ranks > cores * kRanksPerCore) {
    return {ErrorCode::machine_cannot, "",
            fmt::format("{} ranks on {} cores: at most {} ranks a core are started here", ranks, cores, kRanksPerCore),
            "set layout.dp or layout.tp lower, or start the ranks on more machines with a launcher of your own"};
  }
  Result<std::vector<std::string>> own = OwnArguments();
  if (!own) {
    return own.error();
  }
  std::vector<std::string> words = {
      "mpirun", "-np", std::to_string(ranks), "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle",
      "1"};
  if (geteuid() == 0) {
    words.emplace_back("--allow-run-as-root");
  }
  words.insert(words.end(), own->begin(), own->end());
  if (isatty(STDOUT_FILENO) == 0) {
    setenv("NO_COLOR", "1", 0);  // mpirun gives ranks a terminal of its own making
  }
  std::fprintf(stderr, "starting %lld ranks with mpirun%s\n", static_cast<long long>(ranks),
               geteuid() == 0 ? ", as root" : "");
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  execvp(argv.front(), argv.data());
  return {ErrorCode::machine_cannot, "", fmt::format("{} ranks need mpirun, which is not here", ranks),
          "install Open MPI (openmpi-bin), or start the ranks with a launcher of your own"};
}

}  // namespace

Bytes AvailableMemory() {
  std::ifstream memory("/proc/meminfo");
  std::string key;
  for (std::int64_t kibibytes = 0; memory >> key >> kibibytes; memory.ignore(64, '\n')) {
    if (key == "MemAvailable:") {
      return Bytes(kibibytes * 1024);
    }
  }
  return {};
}

Result<std::unique_ptr<World>> EnterWorld(std::int64_t ranks) {
  const std::int64_t launched = LaunchedRanks();
  if (launched == 0 && ranks == 1) {
    return MakeSingleWorld();
  }
  if (launched == 0) {
    return BecomeMpirun(ranks);
  }
  if (launched != ranks) {
    return BadInput(fmt::format("the job has {} ranks, and the launcher has started {}", ranks, launched),
                    fmt::format("start {} processes, or none: tidemark run starts mpirun itself", ranks));
  }
  return OpenMpiWorld();
}

}  // namespace tidemark
