// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"
#include "reports/summarise/trace_report.h"

namespace tidemark {

/// The traces of a file of any readable format. Of one that is cut short, what there is, with its note.
Result<ReadTrace> LoadTrace(const std::string& path);

}  // namespace tidemark
