// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/audit.h"

#include <algorithm>

namespace tidemark {

std::int64_t AuditReport::CountOf(const std::string& kind) const {
  return std::count_if(hazards.begin(), hazards.end(), [&](const HazardReport& hazard) { return hazard.kind == kind; });
}

std::int64_t AuditReport::Errors() const {
  return std::count_if(lints.begin(), lints.end(), [](const Lint& lint) { return lint.severity == "error"; });
}

std::int64_t AuditReport::WrongWindows() const {
  return std::count_if(windows.begin(), windows.end(), [](const WindowReport& window) { return !window.right; });
}

}  // namespace tidemark
