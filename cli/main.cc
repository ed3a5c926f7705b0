// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <span>

#include "cli/command_line.h"

namespace {

int Complain(const tidemark::Error& error) {
  std::fprintf(stderr, "tidemark: error: %s\n", error.Text().c_str());
  return static_cast<int>(error.code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
    const tidemark::Result<int> result = tidemark::RunCommandLine(arguments.subspan(argc > 0 ? 1 : 0));
    return result ? *result : Complain(result.error());
  } catch (const std::exception& exception) {
    // Only libraries throw, and they are caught where they are called: one that gets here is our mistake.
    return Complain(
        {tidemark::ErrorCode::internal, {}, exception.what(), "this is a fault of tidemark: please report it"});
  }
}
