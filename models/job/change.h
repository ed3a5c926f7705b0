// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "models/configs/value.h"
#include "models/network/network.h"

namespace tidemark {

/// `key=value` on a command line: what it says about a job.
struct JobChange {
  std::string key;
  Settings given;  ///< the values; of a section each of its keys
};

/// Reads "layout.tp=8"; the value is YAML and may be a section. Refuses a key that no job has, with the nearest one.
/// `option` is how the change was given: "--set".
Result<JobChange> ParseJobChange(const std::string& text, const std::string& option);

/// What `--set` says, in order. Refuses a whole network or machine behind a key of it, which it would take back.
Result<std::vector<JobChange>> ParseJobChanges(const std::vector<std::string>& texts);

/// The change to a network that is a table and needs nothing but a name beside it. `source` is where it comes from.
Result<JobChange> ChangeToTable(const std::string& name, const Table& table, const std::string& source);

/// Whether it says a whole network or machine, which replaces all that was said about it before.
bool ReplacesSection(const JobChange& change);

/// With what it replaces; another strategy replaces all defaults of the one before.
void Apply(const JobChange& change, Settings& settings);

}  // namespace tidemark
