// SPDX-License-Identifier: Apache-2.0
#include "models/job/read.h"

#include "models/job/job_template.h"

namespace tidemark {

Result<Job> ParseJob(std::string_view text, const std::string& path, const JobChanges& changes,
                     std::span<const StrategyDefaults> strategies) {
  TIDEMARK_ASSIGN(JobTemplate job, JobTemplate::Parse(text, path, changes, strategies));
  return job.With();
}

Result<Job> ReadJob(const std::string& path, const JobChanges& changes, std::span<const StrategyDefaults> strategies) {
  TIDEMARK_ASSIGN(JobTemplate job, JobTemplate::Read(path, changes, strategies));
  return job.With();
}

}  // namespace tidemark
