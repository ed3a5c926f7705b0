// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/render/document.h"
#include "reports/summarise/instants.h"

namespace tidemark {

/// The named instants of one role, each with what is alive then.
Section InstantsSection(const std::string& title, const RoleReport& role, const std::vector<Instant>& instants);
nlohmann::ordered_json InstantsJson(const std::vector<Instant>& instants);

}  // namespace tidemark
