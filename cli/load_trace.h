// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"
#include "reports/summarise/trace_report.h"

namespace tidemark {

/// The traces of a file of any readable format. Refuses one that was cut off: its peak may be in what is missing.
Result<ReadTrace> LoadTrace(const std::string& path);

}  // namespace tidemark
