// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/job/job.h"

namespace tidemark {

/// Whether data-parallel ranks run programs of their own: where padded state is divided, the last ones keep less of it,
/// and where there are gaps between parameters, those that have them. Looks at the first eight ranks and the last.
/// Predictions are of the first then. False where the job cannot be lowered.
bool RanksAreUnlike(const Job& job);

}  // namespace tidemark
