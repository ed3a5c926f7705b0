// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/job/job.h"

namespace tidemark {

/// Something that runs but that its user probably does not want. `hint` says what to change.
struct Lint {
  std::string id, severity, message, hint;  ///< severity: note, warning
};

/// What the job itself gives away.
///   sync-every-microbatch   all-reduces repeated for each microbatch of a window whose sum would have been enough
///   low-precision-sum       many microbatches summed in bf16: zero-mean gradients lose about 1.2e-3 sqrt(M) relative
///   (measured on
///                           10^6 elements), equal ones are biased by up to 12 % after 128 additions and stall between
///                           256 and 380
///   pipeline-underfilled    fewer microbatches than pipeline stages: some stage always waits
std::vector<Lint> LintJob(const Job& job);

}  // namespace tidemark
