// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/lint.h"
#include "models/job/job.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

/// Appends a note (host-adds-gradients) where the host adds up what microbatches reduce one by one, which the device
/// waits for.
void AppendHostWork(const Job& job, const Strategy& strategy, std::vector<Lint>& lints);

}  // namespace tidemark
