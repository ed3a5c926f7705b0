// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
}

namespace tidemark {

/// A verb of the command line. cli/cmd_<x>.cc defines `std::unique_ptr<Command> Cmd<X>()`; that file is all a new verb
/// needs (cmake/table.cmake makes the table).
class Command {
 public:
  virtual ~Command() = default;

  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;  ///< one line, without a full stop
  virtual std::string_view examples()
      const = 0;  ///< whole command lines that work, one a line, each with what it shows

  /// Declares options and positionals; their values live in the command.
  virtual void Setup(CLI::App& app) = 0;

  /// Does it. Writes the result to stdout, notes to stderr; the value is the exit code (0, or 1 for a finding).
  virtual Result<int> Run() = 0;
};

/// All verbs, by name. Generated.
std::vector<std::unique_ptr<Command>> MakeCommands();

}  // namespace tidemark
