// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tidemark {

/// One key in which resolved jobs differ.
struct JobDifference {
  std::string key;                  ///< "buffers.tp_gather"
  std::vector<std::string> values;  ///< by job; "-": the job does not have it
};

/// By key. `jobs` are resolved jobs as YAML; where one is empty nothing can be said.
std::vector<JobDifference> CompareJobs(const std::vector<std::string>& jobs);

}  // namespace tidemark
