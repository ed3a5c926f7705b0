// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/audit.h"

namespace tidemark {

/// "tidemark.audit/1". Fields may be added; they are renamed or removed only with a new schema number.
nlohmann::ordered_json AuditJson(const AuditReport& report);

}  // namespace tidemark
