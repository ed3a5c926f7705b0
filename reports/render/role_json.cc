// SPDX-License-Identifier: Apache-2.0
#include "reports/render/role_json.h"

#include <utility>

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLiveAtPeak = 32;

/// -1 is none.
Json NumberJson(std::int64_t number) { return number < 0 ? Json(nullptr) : Json(number); }

}  // namespace

Json PlaceJson(const Peak& peak) {
  return {{"phase", peak.phase},
          {"step", NumberJson(peak.step)},
          {"microbatch", peak.side.empty() ? NumberJson(peak.microbatch) : Json(nullptr)},
          {"side", peak.side.empty() ? Json(nullptr) : Json(peak.side)},
          {"chunk", peak.side.empty() ? Json(nullptr) : NumberJson(peak.microbatch)},
          {"ns", peak.at ? Json(peak.at->count()) : Json(nullptr)}};
}

Json LiveJson(const std::vector<LiveBuffers>& all, std::size_t most) {
  Json array = Json::array();
  for (const LiveBuffers& live : all) {
    if (array.size() == most) {
      break;
    }
    array.push_back({{"name", live.name},
                     {"category", Name(live.category)},
                     {"dtype", IsTold(live.dtype, live.category) ? Json(Name(live.dtype)) : Json(nullptr)},
                     {"sharding", live.sharding.empty() ? Json(nullptr) : Json(live.sharding)},
                     {"bytes", live.bytes.count()},
                     {"count", live.count},
                     {"since", live.since.count()},
                     {"until", live.until ? Json(live.until->count()) : Json(nullptr)},
                     {"since_phase", live.since_phase},
                     {"until_phase", live.until_phase}});
  }
  return array;
}

Json OptionalBytes(const std::optional<Bytes>& bytes) { return bytes ? Json(bytes->count()) : Json(nullptr); }

Json CategoriesJson(const CategoryBytes& bytes) {
  Json categories = Json::object();
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (category != Category::unknown || bytes[category] != Bytes(0)) {
      categories[std::string(Name(category))] = bytes[category].count();
    }
  }
  return categories;
}

Json RoleJson(const RoleReport& role) {
  Json phases = Json::array();
  for (const PhasePeak& phase : role.phases) {
    phases.push_back({{"phase", phase.phase}, {"allocated_bytes", phase.allocated.count()}, {"where", phase.where}});
  }
  return {{"role", role.role},
          {"ranks", role.ranks},
          {"allocated_bytes", role.peak.allocated.count()},
          {"allocator_bytes", OptionalBytes(role.allocator_bytes)},
          {"reserved_bytes", OptionalBytes(role.reserved)},
          {"reserved_late_bytes", OptionalBytes(role.reserved_late)},
          {"minimum_bytes", OptionalBytes(role.minimum)},
          {"host_bytes", role.host.count()},
          {"device_bytes",
           {{"low", role.device.low.count()},
            {"expected", role.device.expected.count()},
            {"high", role.device.high.count()}}},
          {"at", PlaceJson(role.peak)},
          {"by_category", CategoriesJson(role.peak.by_category)},
          {"live", LiveJson(role.peak.live, kLiveAtPeak)},
          {"phases", std::move(phases)}};
}

}  // namespace tidemark
