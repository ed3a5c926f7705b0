// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/category.h"
#include "reports/summarise/prediction.h"

namespace tidemark {

/// A role and its peak, the same in every schema that has one.
nlohmann::ordered_json RoleJson(const RoleReport& role);

/// Where a peak is, under "at".
nlohmann::ordered_json PlaceJson(const Peak& peak);

/// Tensors that are alive, the largest ones.
nlohmann::ordered_json LiveJson(const std::vector<LiveBuffers>& all, std::size_t most);

/// All categories of a program, those without bytes as well; what a trace does not tell where there is any.
nlohmann::ordered_json CategoriesJson(const CategoryBytes& bytes);

/// Null for what is not known.
nlohmann::ordered_json OptionalBytes(const std::optional<Bytes>& bytes);

}  // namespace tidemark
