// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "base/result.h"

namespace tidemark {

/// Parses a command line (without the program's name) and runs its verb. The value is the exit code.
Result<int> RunCommandLine(std::span<char* const> arguments);

}  // namespace tidemark
