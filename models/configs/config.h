// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// A kind of config file. models/configs/config_<x>.cc defines `ConfigFormat Config<X>()`; that file is all a new
/// format needs (cmake/table.cmake makes the table).
struct ConfigFormat {
  std::string name;
  std::string summary;

  /// Whether a file looks like one of these; at most one format should say so.
  bool (*recognises)(const ConfigValue& root) = nullptr;

  /// The job the file describes, as Tidemark's dotted keys; each keeps the line it came from. What the file says about
  /// memory or time and what cannot be said in these keys is an error, never dropped. `given` is what the command line
  /// says, which comes behind it: what the file leaves open may follow from that (the number of ranks).
  Result<Settings> (*read)(const ConfigValue& root, const Settings& given) = nullptr;

  bool own = false;  ///< Tidemark's, not another tool's

  /// Keys of a network that `read` says of whichever is given, as the code that trains it decides them: another network
  /// does not bring its own.
  std::vector<std::string> of_code = {};
};

/// All formats, by name. Generated.
std::vector<ConfigFormat> ConfigFormats();

}  // namespace tidemark
