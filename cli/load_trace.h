// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "reports/summarise/trace_report.h"

namespace tidemark {

/// The traces of a file of any readable format; "-" is stdin. Of one that is cut short, what there is, with its note.
Result<ReadTrace> LoadTrace(const std::string& path);

/// Refuses a role that none of these files has, as the typing mistake that it is. Empty: any.
Status CheckRole(const std::string& role, std::span<const ReadTrace> files);

}  // namespace tidemark
