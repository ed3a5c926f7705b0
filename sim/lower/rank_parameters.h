// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/job/job.h"

namespace tidemark {

/// Parameters that one tensor-parallel rank stores, of all pipeline stages together; 0 of a network that cannot be cut
/// like this.
std::int64_t RankParameters(const Job& job);

}  // namespace tidemark
