// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "base/category.h"
#include "reports/summarise/prediction.h"

namespace tidemark {

/// A role and its peak, the same in every schema that has one.
nlohmann::ordered_json RoleJson(const RoleReport& role);

/// All categories, those without bytes as well.
nlohmann::ordered_json CategoriesJson(const CategoryBytes& bytes);

/// Null for what is not known.
nlohmann::ordered_json OptionalBytes(const std::optional<Bytes>& bytes);

}  // namespace tidemark
