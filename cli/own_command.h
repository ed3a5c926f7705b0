// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tidemark {

/// What a process of this program has said, and its exit code.
struct CommandOutput {
  std::string out, err;
  int exit_code = 0;
};

/// This process's own command line, its first word the path of this program.
Result<std::vector<std::string>> OwnArguments();

/// Runs this program once more with these words and waits for it: a run of its own, which may start ranks, run out of
/// memory or crash without taking this process along. It ends with this process. Fails with interrupted where it was
/// interrupted, with machine_cannot where no process can be started.
Result<CommandOutput> RunOwnCommand(const std::vector<std::string>& words);

}  // namespace tidemark
