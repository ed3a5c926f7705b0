// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/lint.h"
#include "base/result.h"
#include "cli/options.h"

namespace CLI {
class App;
}

namespace tidemark {

/// --observed: a trace whose measured microbatch takes the place of the job's network.
struct ObservedOptions {
  std::string path;  ///< empty: the network is the job's own
  std::optional<std::int64_t>
      batch;                   ///< samples of the measured microbatch; default: micro_batch_size of the job's file
  std::int64_t frozen = 0;     ///< parameters without gradients, of which the trace does not tell
  std::optional<DType> dtype;  ///< of gradients, where the trace does not tell it; default: fp32
};
void AddObservedOptions(CLI::App& app, ObservedOptions& options);

/// What was seen in the trace.
struct Observation {
  std::vector<std::string> lines;  ///< a phrase each; empty: there is no trace
  std::optional<Lint> lint;        ///< what the numbers should not be believed without
};

/// The network that the trace shows becomes the job's, whether it has one or not, for every verb that loads the job by
/// these options and in every command line that is printed of them.
Result<Observation> Observe(const ObservedOptions& options, JobOptions& job);

/// On stderr: for verbs whose report is not of one prediction.
void TellObserved(const Observation& observation);

}  // namespace tidemark
