// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/sim/oracle_job.h"

namespace tidemark {

/// The oracle's job with its optimizer in host memory.
inline Job Offloaded(const std::string& strategy, std::int64_t microbatches) {
  Job job = OracleJob(strategy, microbatches);
  job.axes.optimizer_step.offload = true;
  return job;
}

}  // namespace tidemark
