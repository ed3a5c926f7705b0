// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reports/summarise/prediction.h"

namespace tidemark {

/// A role's trace as compact JSON for the scripts of the HTML report (page/role_data.js reads it): integer columns,
/// times as differences to the row before. Safe within a <script> element whatever the names hold. The role has a
/// trace.
std::string TraceJson(const RoleReport& role, Bytes device_memory);

}  // namespace tidemark
