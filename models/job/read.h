// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/job/change.h"
#include "models/job/job.h"
#include "models/network/network.h"

namespace tidemark {

/// What the command line adds to a config file.
struct JobChanges {
  /// "layout.tp=8": dotted key, value in YAML. The last of a key wins; a whole network or machine may not take back a
  /// key of it that was set before.
  std::vector<std::string> set;
  std::optional<std::string> format;  ///< name of a config format; absent: recognised by content
  std::vector<JobChange> read = {};   ///< before `set`: what was read from somewhere else
};

/// Reads a job from a config file of any known format. A value comes from, lowest first: the default of the strategy's
/// real system, the file, `changes.read`, `changes.set`; Job::sources says which for every key. The job is valid
/// (models/job/validate.h).
Result<Job> ReadJob(const std::string& path, const JobChanges& changes, std::span<const StrategyDefaults> strategies);

/// The same for text at hand. `path` names it in messages; paths inside the text are relative to its folder.
Result<Job> ParseJob(std::string_view text, const std::string& path, const JobChanges& changes,
                     std::span<const StrategyDefaults> strategies);

/// The resolved job as Tidemark YAML: every default written out, behind every value where it came from. Reading it
/// gives an equal job (up to `sources`).
std::string JobYaml(const Job& job);

/// What stands behind `network:` of a job whose network is this table, on one line.
std::string TableYaml(const std::string& name, const Table& table);

}  // namespace tidemark
