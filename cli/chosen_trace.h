// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "reports/summarise/trace_report.h"

namespace tidemark {

/// Which trace of a file has this role; of no role, which one peaks highest. Refuses a role that none has, with the
/// nearest.
Result<std::size_t> ChooseTrace(const ReadTrace& file, const std::string& role);

}  // namespace tidemark
