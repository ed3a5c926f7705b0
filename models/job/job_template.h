// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/configs/config.h"
#include "models/job/change.h"
#include "models/job/job.h"
#include "models/job/read.h"

namespace tidemark {

/// A job's config that is read once and resolved often, each time with other changes. It remembers the networks and
/// machines that it has read, so that each thread wants one of its own.
class JobTemplate {
 public:
  /// As ReadJob and ParseJob take them; the strategies must outlive it. What another tool's config leaves open is not
  /// missed before a job is asked for.
  static Result<JobTemplate> Read(const std::string& path, const JobChanges& changes,
                                  std::span<const StrategyDefaults> strategies);
  static Result<JobTemplate> Parse(std::string_view text, const std::string& path, const JobChanges& changes,
                                   std::span<const StrategyDefaults> strategies);

  /// The job with these changes, in order, behind those of the template: what ReadJob says of all of them.
  Result<Job> With(std::span<const JobChange* const> changes = {});
  /// The same before anything asks whether the values go together (models/job/validate.h) and whether the strategy's
  /// system takes them: every value by itself is one that its key may have.
  Result<Job> Unchecked(std::span<const JobChange* const> changes);
  /// The same without changes. An error that knows no place is the file's.
  Result<Job> Base();
  /// Whether values follow from others that are changed: another tool's config is read anew for each job.
  bool follows() const { return !format_.own; }
  /// Its machine alone, which no other key has a part in.
  Result<Machine> MachineWith(std::span<const JobChange* const> changes);

 private:
  struct KnownNetwork {
    Network network;
    std::map<std::string, std::string> sources;
  };

  JobTemplate(ConfigValue root, ConfigFormat format, std::vector<JobChange> changes, std::string path,
              std::span<const StrategyDefaults> strategies);

  Result<Settings> Changed(std::span<const JobChange* const> changes) const;
  Result<Settings> ReadWith(std::span<const JobChange* const> changes) const;
  void DropOtherSystems(const Settings& theirs, Settings& settings) const;
  Result<Job> Resolve(const Settings& settings);
  Result<Job> InFile(Result<Job> job) const;
  Status Check(const Job& job, const Settings& settings) const;
  Status FindNetwork(const Settings& settings, Job& job);
  Result<Machine> MachineOf(const Settings& settings);

  ConfigValue root_;
  ConfigFormat format_;
  std::vector<JobChange> changes_;  ///< of the template: JobChanges::read, then JobChanges::set
  Settings own_;                    ///< with those changes, of a job of our own; other tools' are read anew each time
  std::string path_, folder_;
  std::span<const StrategyDefaults> strategies_;
  std::map<std::string, KnownNetwork> networks_;  ///< by all that the settings say about them
  std::map<std::string, Machine> machines_;       ///< as their files have them, by all that is said of `from`
};

}  // namespace tidemark
