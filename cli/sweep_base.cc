// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_base.h"

#include <utility>

#include "models/job/change.h"
#include "sim/sweep/axis.h"

namespace tidemark {

Result<Job> SweepBase(JobTemplate& job, const std::vector<std::string>& vary) {
  Result<Job> base = job.Base();
  if (base) {
    return base;
  }
  std::vector<JobChange> firsts;
  for (const std::string& one : vary) {
    TIDEMARK_ASSIGN(const SweepAxis axis, ParseSweepAxis(one));
    TIDEMARK_ASSIGN(firsts.emplace_back(), ParseJobChange(axis.key + "=" + axis.values.front(), "--vary"));
  }
  std::vector<const JobChange*> changes;
  for (const JobChange& first : firsts) {
    changes.push_back(&first);
  }
  Result<Job> with_firsts = job.Unchecked(changes);
  return with_firsts ? std::move(with_firsts) : std::move(base);
}

}  // namespace tidemark
