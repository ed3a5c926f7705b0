// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// Whether a text has a word that begins as a long option does: "--num-layers".
bool HasOptions(std::string_view text);

/// Parses a command line, on one line or many, into what ParseConfig makes of YAML: its options are the fields of a
/// map, without their dashes ("num-layers"), each at its own line; the words before the first one are the field "". An
/// option that no value follows is "true", one that several follow is a list, and of one that stands there twice the
/// last counts, as with Python's argparse. Words are quoted as in a shell, lines that end with a backslash go on, and a
/// comment follows a '#'. No shell runs: "$TP" stays
/// "$TP", and a script ("#!") is refused, as what it runs is for a shell to say. `path` is for error messages.
Result<ConfigValue> ParseArguments(std::string_view text, const std::string& path);

}  // namespace tidemark
