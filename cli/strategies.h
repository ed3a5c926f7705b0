// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/job/job.h"

namespace tidemark {

/// KnownStrategies() for an audit: of a job whose own predicates let no step be made they are asked as if its windows
/// were ordinary, because that is what the audit is to tell.
std::vector<StrategyDefaults> StrategiesForAudit();

}  // namespace tidemark
