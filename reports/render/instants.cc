// SPDX-License-Identifier: Apache-2.0
#include "reports/render/instants.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "reports/render/role_json.h"
#include "reports/render/role_sections.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLargestCategories = 3;
constexpr std::size_t kLive = 16;

/// "activation 34.2 GiB, logits 11.7 GiB, parameter 4.72 GiB"
std::string Largest(const CategoryBytes& bytes) {
  std::vector<std::pair<Bytes, Category>> parts;
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (bytes[category] > Bytes(0)) {
      parts.emplace_back(bytes[category], category);
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kLargestCategories); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", Name(parts[i].second), Text(parts[i].first));
  }
  return text;
}

}  // namespace

Section InstantsSection(const std::string& title, const RoleReport& role, const std::vector<Instant>& instants) {
  Section section{title, fmt::format("{}; of those that repeat, the fullest", role.role), {}, {}};
  section.table.columns = {
      {"instant", false, false}, {"tensors", true, false}, {"in", false, false}, {"largest", false, true}};
  for (const Instant& instant : instants) {
    section.table.rows.push_back(
        {{instant.name, Text(instant.allocated), PhaseLabel(instant.place), Largest(instant.by_category)},
         std::nullopt});
  }
  return section;
}

Json InstantsJson(const std::vector<Instant>& instants) {
  Json array = Json::array();
  for (const Instant& instant : instants) {
    Json live = Json::array();
    for (std::size_t i = 0; i < std::min(instant.live.size(), kLive); ++i) {
      const InstantTensors& tensors = instant.live[i];
      live.push_back({{"name", tensors.name},
                      {"category", Name(tensors.category)},
                      {"bytes", tensors.bytes.count()},
                      {"count", tensors.count}});
    }
    array.push_back({{"name", instant.name},
                     {"bytes", instant.allocated.count()},
                     {"in", PhaseLabel(instant.place)},
                     {"ns", instant.at.count()},
                     {"by_category", CategoriesJson(instant.by_category)},
                     {"live", std::move(live)}});
  }
  return array;
}

}  // namespace tidemark
