// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/lint.h"
#include "models/job/job.h"

namespace tidemark {

/// Appends a note (option-without-effect) for each option of the network, of its kernels, of the update or of
/// recomputation that is not at its default and changes nothing in this job.
void AppendIdleOptions(const Job& job, std::vector<Lint>& lints);

}  // namespace tidemark
