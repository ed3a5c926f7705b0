// SPDX-License-Identifier: Apache-2.0
#include "cli/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/own_command.h"
#include "cli/supervisor.h"
#include "profiler/comm/launcher.h"
#include "profiler/execute/run.h"

namespace tidemark {
namespace {

/// "rank 3 (dp 1, tp 1)"; "rank 0" where there is nothing to tell apart.
std::string NameOf(const Job& job, std::int64_t rank) {
  const Layout& layout = job.layout;
  std::vector<std::string> places;
  const auto add = [&](const char* axis, std::int64_t extent, std::int64_t place) {
    if (extent > 1) {
      places.push_back(fmt::format("{} {}", axis, place));
    }
  };
  add("pp", layout.pp, static_cast<std::int64_t>(RoleOf(job, rank)));
  add("dp", layout.dp, rank / layout.tp / layout.cp % layout.dp);
  add("cp", layout.cp, rank / layout.tp % layout.cp);
  add("tp", layout.tp, TensorParallelPlaceOf(job, rank).rank);
  return places.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, fmt::join(places, ", "));
}

/// What one process has read from a pipe, others cannot.
Status RefusePipes(const std::vector<std::string>& inputs, std::int64_t ranks) {
  for (const std::string& input : inputs) {
    std::error_code none;
    constexpr std::array<std::string_view, 3> kOwn = {"/dev/stdin", "/dev/fd/", "/proc/self/"};  // of each process
    const bool own =
        std::any_of(kOwn.begin(), kOwn.end(), [&](std::string_view prefix) { return input.starts_with(prefix); });
    if (own || (!input.empty() && !std::filesystem::is_regular_file(input, none))) {
      return BadInput(fmt::format("'{}' is a pipe, and {} ranks must each read it", input, ranks),
                      "save it in a file and name that");
    }
  }
  return Done{};
}

/// More ranks than cores yield to each other while they wait, up to a number that a machine bears.
Result<int> RunUnderMpirun(const Job& job, const LaunchOptions& options) {
  constexpr std::int64_t kRanksPerCore = 16;
  const std::int64_t ranks = job.Ranks();
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  if (ranks > cores * kRanksPerCore) {
    return Error{
        ErrorCode::machine_cannot, "",
        fmt::format("{} ranks on {} cores: at most {} ranks a core are started here", ranks, cores, kRanksPerCore),
        "set layout.dp, layout.cp or layout.tp lower, or start the ranks on more machines with a launcher of your own"};
  }
  TIDEMARK_TRY(RefusePipes(options.inputs, ranks));
  TIDEMARK_ASSIGN(const std::vector<std::string> own, OwnArguments());
  SupervisedRun run;
  run.command = {
      "mpirun", "-np", std::to_string(ranks), "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle",
      "1"};
  // ob1 goes through memory that ranks share. Left to choose, each looks 0.2 s for a network between them.
  if (std::getenv("OMPI_MCA_pml") == nullptr) {
    run.command.insert(run.command.end(), {"--mca", "pml", "ob1"});
  }
  if (geteuid() == 0) {
    run.command.emplace_back("--allow-run-as-root");
  }
  run.command.insert(run.command.end(), own.begin(), own.end());
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    run.ranks.push_back(NameOf(job, rank));
  }
  run.hang_timeout = options.hang_timeout;
  run.left_behind = options.left_behind;
  std::fprintf(stderr, "starting %lld ranks with mpirun%s\n", static_cast<long long>(ranks),
               geteuid() == 0 ? ", as root" : "");
  return Supervise(run);
}

/// The first SIGINT or SIGTERM ends the rank at its next operation, in good order; a second one at once.
void StopOnSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { RankProgress::AskToStop(); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

std::string TimeDoubt(std::int64_t ranks_here) {
  const std::int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
  return ranks_here <= cores
             ? ""
             : fmt::format("times: {} ranks share {} cores here, and wait for each other", ranks_here, cores);
}

Result<Entered> EnterWorld(const Job& job, const LaunchOptions& options) {
  const std::int64_t ranks = job.Ranks();
  const Launcher launcher = FindLauncher();
  TIDEMARK_ASSIGN(const Meeting meeting, MeetingOf(launcher, ranks, options.meet_on_gpus != nullptr));
  Entered entered;
  const auto attach = [&] {
    entered.link = RankLink::Attach(static_cast<std::size_t>(launcher.rank), static_cast<std::size_t>(ranks));
  };
  if (meeting == Meeting::alone) {
    entered.link = RankLink::Attach(0, 1);
    entered.world = MakeSingleWorld();
    StopOnSignals();
  } else if (meeting == Meeting::mpi) {
    attach();
    TIDEMARK_ASSIGN(entered.world, OpenMpiWorld());
    if (entered.world->size() != ranks) {
      return Error{ErrorCode::machine_cannot, "",
                   fmt::format("{} processes were started, but MPI sees {}", ranks, entered.world->size()),
                   "is the launcher of the same MPI as this program (Open MPI)?"};
    }
  } else if (meeting == Meeting::nccl) {
    attach();
    TIDEMARK_ASSIGN(entered.world, options.meet_on_gpus());
  } else if (meeting == Meeting::starts) {
    TIDEMARK_ASSIGN(entered.exit_code, RunUnderMpirun(job, options));
  }
  return entered;
}

}  // namespace tidemark
