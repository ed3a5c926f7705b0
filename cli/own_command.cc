// SPDX-License-Identifier: Apache-2.0
#include "cli/own_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include "base/file.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLargestCommandLine = 1 << 20;

/// A file without a name: what is written there waits until it is read, however long it is.
using Drawer = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

Drawer OpenDrawer() { return {std::tmpfile(), &std::fclose}; }

std::string Empty(std::FILE* drawer) {
  std::string text;
  std::array<char, 65536> piece;
  std::rewind(drawer);
  while (const std::size_t n_read = std::fread(piece.data(), 1, piece.size(), drawer)) {
    text.append(piece.data(), n_read);
  }
  return text;
}

Error CannotStart() {
  return {ErrorCode::machine_cannot, "", fmt::format("no process can be started: {}", std::strerror(errno)), ""};
}

[[noreturn]] void Become(std::vector<std::string>& words, pid_t parent, int out, int err) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == parent) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    execv(arguments.front(), arguments.data());
  }
  _exit(127);  // as a shell says that there is no such command
}

}  // namespace

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

Result<CommandOutput> RunOwnCommand(const std::vector<std::string>& words) {
  TIDEMARK_ASSIGN(const std::vector<std::string> own, OwnArguments());
  if (own.empty()) {
    return CannotStart();
  }
  std::vector<std::string> command = {own.front()};
  command.insert(command.end(), words.begin(), words.end());
  const Drawer out = OpenDrawer(), err = OpenDrawer();
  if (!out || !err) {
    return CannotStart();
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    Become(command, parent, fileno(out.get()), fileno(err.get()));
  }
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0) {
    return CannotStart();
  }
  const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (exit_code == static_cast<int>(ErrorCode::interrupted)) {
    return Error{ErrorCode::interrupted, "", "interrupted", ""};
  }
  return CommandOutput{Empty(out.get()), Empty(err.get()), exit_code};
}

}  // namespace tidemark
