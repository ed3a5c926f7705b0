// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "reports/summarise/prediction.h"

namespace tidemark {

/// A role and its peak, the same in every schema that has one.
nlohmann::ordered_json RoleJson(const RoleReport& role);

/// Null for what is not known.
nlohmann::ordered_json OptionalBytes(const std::optional<Bytes>& bytes);

}  // namespace tidemark
