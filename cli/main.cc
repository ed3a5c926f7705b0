// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <utility>

#include "cli/command_line.h"

namespace {

/// Where a standard stream is closed, the next file that is opened would take its place, and be written to as stdout.
/// What is opened here instead refuses to be read, or written to, as a closed stream does.
void KeepStandardStreams() {
  for (const auto& [stream, mode] :
       {std::pair(STDIN_FILENO, O_WRONLY), std::pair(STDOUT_FILENO, O_RDONLY), std::pair(STDERR_FILENO, O_RDONLY)}) {
    if (fcntl(stream, F_GETFD) == -1) {
      open("/dev/null", mode);  // the lowest number that is free
    }
  }
}

int Complain(const tidemark::Error& error) {
  std::fprintf(stderr, "tidemark: error: %s\n", error.Text().c_str());
  return static_cast<int>(error.code);
}

}  // namespace

int main(int argc, char** argv) {
  KeepStandardStreams();
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is an error of writing, not our death
  try {
    const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
    const tidemark::Result<int> result = tidemark::RunCommandLine(arguments.subspan(argc > 0 ? 1 : 0));
    return result ? *result : Complain(result.error());
  } catch (const std::bad_alloc&) {
    return Complain(
        {tidemark::ErrorCode::machine_cannot,
         {},
         "this machine gives tidemark no more memory",
         "is there a limit (ulimit -v, a container's)? fewer layers, micro batches or --threads need less"});
  } catch (const std::exception& exception) {
    // Only libraries throw, and they are caught where they are called: one that gets here is our mistake.
    return Complain(
        {tidemark::ErrorCode::internal, {}, exception.what(), "this is a fault of tidemark: please report it"});
  }
}
