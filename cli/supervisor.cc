// SPDX-License-Identifier: Apache-2.0
#include "cli/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/process_sample.h"
#include "cli/rank_link.h"
#include "profiler/execute/watchdog.h"

namespace tidemark {
namespace {

using State = RankProgress::State;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookEvery{250};
constexpr std::chrono::seconds kPatience{5};              ///< from asking the launcher to end to ending it
constexpr std::size_t kMostWords = std::size_t{1} << 16;  ///< kept of what the launcher says

struct Pipe {
  Descriptor read, write;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Error{ErrorCode::machine_cannot, "", fmt::format("no pipe can be made: {}", std::strerror(errno)), ""};
  }
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

/// With the names of Open MPI's settings in this environment: what it cannot do with them it does not say.
std::string WithMpiSettings(std::string hint) {
  const char* separator = "; this environment sets ";
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with("OMPI_MCA_")) {
      hint.append(std::exchange(separator, ", ")).append(text.substr(0, text.find('=')));
    }
  }
  return hint;
}

/// Signals that arrive as something to read. Before it goes, the signals are as they were.
class Signals {
 public:
  Signals() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
      sigaddset(&wanted, signal);
    }
    sigprocmask(SIG_BLOCK, &wanted, &before_);
    descriptor_ = Descriptor(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

  int descriptor() const { return descriptor_.get(); }
  const sigset_t& before() const { return before_; }
  /// Whether one of those that have come asks for the end.
  bool Interrupt() const {
    bool interrupt = false;
    signalfd_siginfo come{};
    while (read(descriptor_.get(), &come, sizeof come) == sizeof come) {
      interrupt = interrupt || come.ssi_signo != SIGCHLD;
    }
    return interrupt;
  }

 private:
  sigset_t before_{};
  Descriptor descriptor_;
};

/// In the child: becomes the command. It is in a group of its own, so that a Ctrl-C reaches it through its supervisor,
/// and is ended with that.
[[noreturn]] void BecomeCommand(const std::vector<std::string>& command, pid_t supervisor, const sigset_t& signals,
                                int out, int err) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == supervisor) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    sigprocmask(SIG_SETMASK, &signals, nullptr);
    std::vector<char*> words;
    for (const std::string& word : command) {
      words.push_back(const_cast<char*>(word.c_str()));
    }
    words.push_back(nullptr);
    execvp(words.front(), words.data());
  }
  _exit(127);  // as a shell says that there is no such command
}

class Supervisor {
 public:
  Supervisor(const SupervisedRun& run, RankServer server, SharedProgress progress)
      : run_(run),
        server_(std::move(server)),
        progress_(std::move(progress)),
        ranks_(run.ranks.size()),
        watchdog_(run.hang_timeout) {}

  Result<int> Run() {
    TIDEMARK_TRY(Start());
    int status = 0;
    while (waitpid(launcher_, &status, WNOHANG) == 0) {
      LookAtEvents(kLookEvery);
      LookAtRanks();
    }
    launcher_ = -1;  // its number may be another process's now
    while (LookAtEvents(std::chrono::milliseconds(0))) {
    }
    KillRanks();
    return Verdict(status);
  }

 private:
  struct Rank {
    Descriptor socket;
    pid_t pid = 0;  ///< 0: has not come
  };

  Status Start() {
    TIDEMARK_ASSIGN(Pipe out, MakePipe());
    TIDEMARK_ASSIGN(Pipe err, MakePipe());
    const std::string& variable = server_.variable();
    const std::size_t equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
    const pid_t supervisor = getpid();
    launcher_ = fork();
    if (launcher_ == 0) {
      BecomeCommand(run_.command, supervisor, signals_.before(), out.write.get(), err.write.get());
    }
    if (launcher_ < 0) {
      return Error{ErrorCode::machine_cannot, "", fmt::format("no process can be started: {}", std::strerror(errno)),
                   ""};
    }
    out_ = std::move(out.read);
    err_ = std::move(err.read);
    return Done{};
  }

  /// Waits for something to happen; whether it has.
  bool LookAtEvents(std::chrono::milliseconds at_most) {
    std::vector<pollfd> watched = {{signals_.descriptor(), POLLIN, 0},
                                   {server_.descriptor(), POLLIN, 0},
                                   {out_.get(), POLLIN, 0},
                                   {err_.get(), POLLIN, 0}};
    const std::size_t first_rank = watched.size();
    for (const Rank& rank : ranks_) {
      watched.push_back({rank.socket.get(), POLLIN, 0});  // a closed one (-1) is passed over
    }
    if (poll(watched.data(), watched.size(), static_cast<int>(at_most.count())) <= 0) {
      return false;
    }
    if (watched[0].revents != 0 && signals_.Interrupt() && !End()) {
      interrupted_ = true;
    }
    if (watched[1].revents != 0) {
      Welcome();
    }
    Drain(out_, watched[2].revents != 0, [](std::string_view text) {
      [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    });
    Drain(err_, watched[3].revents != 0, [this](std::string_view text) {
      words_ += text.substr(0, kMostWords - std::min(kMostWords, words_.size()));
    });
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (watched[first_rank + i].revents != 0) {
        Leave(i);
      }
    }
    return true;
  }

  template <class Take>
  static void Drain(Descriptor& from, bool ready, Take take) {
    std::array<char, 4096> piece;
    const ssize_t count = ready ? read(from.get(), piece.data(), piece.size()) : 1;
    if (ready && count > 0) {
      take(std::string_view(piece.data(), static_cast<std::size_t>(count)));
    } else if (count <= 0) {
      from.Close();
    }
  }

  void Welcome() {
    std::optional<RankServer::Arrival> arrival = server_.Accept(progress_);
    if (arrival && arrival->rank < ranks_.size()) {
      ranks_[arrival->rank] = {std::move(arrival->socket), arrival->pid};
    }
  }

  void Leave(std::size_t rank) {
    ranks_[rank].socket.Close();
    const State state = progress_[rank].state();
    if (!ending_since_ && state != State::ended && state != State::failed) {
      lost_.push_back(rank);
    }
  }

  /// The first rank that goes with its work undone is the one that died: the launcher ends the others for it. On a busy
  /// machine we may see several go at once; the launcher has seen which was first, and tells ("process rank 1 with
  /// PID").
  std::optional<std::size_t> Died() const {
    for (const std::size_t rank : lost_) {
      if (words_.find(fmt::format("process rank {} ", rank)) != std::string::npos) {
        return rank;
      }
    }
    return lost_.empty() ? std::nullopt : std::optional(lost_.front());
  }

  void LookAtRanks() {
    const auto now = Clock::now();
    if (ending_since_) {
      if (now - *ending_since_ > kPatience) {
        KillRanks();
        kill(launcher_, SIGKILL);
      }
      return;
    }
    if (run_.hang_timeout <= Nanos() || now - last_look_ < kLookEvery) {
      return;
    }
    last_look_ = now;
    std::vector<std::optional<RankSample>> samples(ranks_.size());
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].socket.open()) {
        samples[i] = SampleProcess(ranks_[i].pid, progress_[i]);
      }
    }
    stall_ = watchdog_.Look(Nanos(std::chrono::nanoseconds(now.time_since_epoch()).count()), samples);
    if (stall_) {
      End();
    }
  }

  /// Asks the launcher to end all ranks; whether it was asked before.
  bool End() {
    if (ending_since_) {
      return true;
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      places_.push_back(progress_[i].place());
    }
    ending_since_ = Clock::now();
    if (launcher_ > 0) {
      kill(launcher_, SIGTERM);
    }
    return false;
  }

  void KillRanks() {
    for (Rank& rank : ranks_) {
      if (rank.socket.open()) {
        kill(rank.pid, SIGKILL);
        rank.socket.Close();
      }
    }
  }

  Result<int> Verdict(int status) const;
  Error Lost(std::size_t rank, int code) const;
  Error Stalled() const;
  Error Unexplained(int status) const;
  std::string Hint(const std::string& hint) const;

  const SupervisedRun& run_;
  Signals signals_;
  RankServer server_;
  SharedProgress progress_;
  std::vector<Rank> ranks_;
  Watchdog watchdog_;
  pid_t launcher_ = -1;
  Descriptor out_, err_;
  std::string words_;  ///< the launcher's
  bool interrupted_ = false;
  std::vector<std::size_t> lost_;  ///< in the order in which they went
  std::optional<Watchdog::Stall> stall_;
  std::vector<RankProgress::Place> places_;  ///< where the ranks were when they were asked to end
  std::optional<Clock::time_point> ending_since_;
  Clock::time_point last_look_;
};

std::string Supervisor::Hint(const std::string& hint) const {
  return run_.left_behind.empty() ? hint : hint.empty() ? run_.left_behind : hint + "; " + run_.left_behind;
}

Error Supervisor::Lost(std::size_t rank, int code) const {
  const int signal = code > 128 ? code - 128 : 0;
  const char* name = sigabbrev_np(signal);
  const std::string how = signal == 0       ? fmt::format("ended early with exit code {}", code)
                          : name == nullptr ? fmt::format("was ended by signal {}", signal)
                                            : fmt::format("was ended by SIG{}", name);
  constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  const bool crashed = std::find(kCrashes.begin(), kCrashes.end(), signal) != kCrashes.end();
  const char* hint = crashed             ? "this is a fault of tidemark: please report it, with the job"
                     : signal == 0       ? "it may have said why above; else somebody has ended mpirun"
                     : signal == SIGKILL ? "a system that runs out of memory ends processes like this (dmesg tells): "
                                           "tidemark predict says what a rank needs"
                                         : "somebody else has ended it: a time limit, a scheduler, a person";
  return {crashed ? ErrorCode::internal : ErrorCode::machine_cannot, "",
          fmt::format("{} {} {}", run_.ranks[rank], how, progress_[rank].place().Text()),
          Hint(signal == 0 ? WithMpiSettings(hint) : hint)};
}

Error Supervisor::Stalled() const {
  const double seconds = static_cast<double>(stall_->length.count()) * 1e-9;
  if (!stall_->rank) {
    return {
        ErrorCode::internal, "",
        fmt::format("all ranks have waited for each other for {:.0f} s, rank 0 {}", seconds, places_.front().Text()),
        Hint("this is a fault of tidemark: please report it, with the job")};
  }
  const char* how = stall_->stopped ? "is stopped by a signal" : "neither gets on nor uses the processor";
  return {ErrorCode::machine_cannot, "",
          fmt::format("{} hangs {}: for {:.0f} s it {}, and the others wait for it", run_.ranks[*stall_->rank],
                      places_[*stall_->rank].Text(), seconds, how),
          Hint("--hang-timeout 300s waits longer, 0s forever")};
}

Error Supervisor::Unexplained(int status) const {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, words_.data(), words_.size());
  const bool come = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.pid != 0; });
  if (!come && WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return {ErrorCode::machine_cannot, "",
            fmt::format("{} ranks need {}, which is not here", ranks_.size(), run_.command.front()),
            "install Open MPI (openmpi-bin), or start the ranks with a launcher of your own"};
  }
  return {ErrorCode::machine_cannot, "",
          WIFSIGNALED(status) ? fmt::format("{} was ended by signal {}", run_.command.front(), WTERMSIG(status))
                              : fmt::format("{} ended with exit code {}", run_.command.front(), WEXITSTATUS(status)),
          Hint(WIFSIGNALED(status) ? "somebody else has ended it: a time limit, a scheduler, a person"
               : come              ? ""
                                   : "what it says stands above; no rank had begun")};
}

Result<int> Supervisor::Verdict(int status) const {
  if (interrupted_) {
    return Error{ErrorCode::interrupted, "", fmt::format("interrupted, rank 0 {}", places_.front().Text()), Hint("")};
  }
  if (stall_) {
    return Stalled();
  }
  bool ended = true, failed = false;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    ended = ended && progress_[i].state() == State::ended;
    failed = failed || progress_[i].state() == State::failed;
  }
  if (!WIFEXITED(status)) {
    return Unexplained(status);
  }
  const int code = WEXITSTATUS(status);
  if (code == 0 || ended || failed) {
    return code;
  }
  const auto died = Died();
  return died ? Lost(*died, code) : Unexplained(status);
}

}  // namespace

Result<int> Supervise(const SupervisedRun& run) {
  TIDEMARK_ASSIGN(RankServer server, RankServer::Open());
  TIDEMARK_ASSIGN(SharedProgress progress, SharedProgress::Make(run.ranks.size()));
  return Supervisor(run, std::move(server), std::move(progress)).Run();
}

}  // namespace tidemark
