// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "cli/options.h"
#include "models/job/job.h"

namespace CLI {
class App;
}

namespace tidemark {

/// --observed: a trace whose measured microbatch takes the place of the job's network.
struct ObservedOptions {
  std::string path;                   ///< empty: the network is the job's own
  std::optional<std::int64_t> batch;  ///< samples of the measured microbatch; default: the job's micro_batch_size
  DType dtype = DType::fp32;          ///< of gradients, where the trace does not tell it
};
void AddObservedOptions(CLI::App& app, ObservedOptions& options);

struct ObservedJob {
  Job job;
  std::vector<std::string> observed;  ///< what comes from the trace, a phrase each; empty: nothing does
};

/// The job; where there is a trace, with the network that it shows, whether the job has one or not.
Result<ObservedJob> LoadObservedJob(const JobOptions& job, const ObservedOptions& options);

}  // namespace tidemark
