// SPDX-License-Identifier: Apache-2.0
#include "reports/check/live_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/category.h"
#include "reports/check/json_document.h"

namespace tidemark {
namespace {

using Json = nlohmann::json;

Result<LiveBuffers> ReadLive(const Json& json) {
  LiveBuffers live;
  TIDEMARK_ASSIGN(live.name, TextAt(json, "name"));
  TIDEMARK_ASSIGN(const std::string category, TextAt(json, "category"));
  const std::optional<Category> known = ParseCategory(category);
  if (!known) {
    return BadKey("category", fmt::format("'{}' is no category of tensors", category.substr(0, 60)));
  }
  live.category = *known;
  TIDEMARK_ASSIGN(const std::int64_t bytes, NumberAt(json, "bytes"));
  live.bytes = Bytes(bytes);
  TIDEMARK_ASSIGN(live.since_phase, TextAt(json, "since_phase"));
  TIDEMARK_ASSIGN(live.until_phase, TextAt(json, "until_phase"));
  return live;
}

}  // namespace

Result<Peak> ReadPeak(const Json& object, const char* bytes_key) {
  Peak peak;
  TIDEMARK_ASSIGN(const std::int64_t allocated, NumberAt(object, bytes_key));
  peak.allocated = Bytes(allocated);
  TIDEMARK_ASSIGN(const Json list, ListAt(object, "live"));
  Bytes rest = peak.allocated;
  for (const Json& item : list) {
    Result<LiveBuffers> live = ReadLive(item);
    if (!live) {
      return std::move(live).At("live").error();
    }
    if (live->bytes > rest) {
      break;
    }
    rest -= live->bytes;
    peak.by_category[live->category] += live->bytes;
    peak.live.push_back(std::move(*live));
  }
  if (rest != Bytes(0) || peak.live.size() != list.size()) {
    return BadKey("live", fmt::format("its tensors do not sum to {}", bytes_key),
                  "write this file with tidemark, not by hand");
  }
  return peak;
}

nlohmann::ordered_json LiveOf(const Peak& peak) {
  std::vector<LiveBuffers> sorted = peak.live;
  std::stable_sort(sorted.begin(), sorted.end(), [](const LiveBuffers& a, const LiveBuffers& b) {
    return std::tuple(Name(a.category), std::string_view(a.name)) <
           std::tuple(Name(b.category), std::string_view(b.name));
  });
  auto list = nlohmann::ordered_json::array();
  for (const LiveBuffers& live : sorted) {
    list.push_back({{"category", Name(live.category)},
                    {"name", live.name},
                    {"bytes", live.bytes.count()},
                    {"since_phase", live.since_phase},
                    {"until_phase", live.until_phase}});
  }
  return list;
}

Result<std::map<std::string, std::string>> ReadHardware(const Json& object) {
  TIDEMARK_ASSIGN(const Json parts, ObjectAt(object, "hardware"));
  std::map<std::string, std::string> hardware;
  for (const auto& [part, value] : parts.items()) {
    TIDEMARK_ASSIGN(hardware[part], TextAt(parts, part.c_str()));
  }
  return hardware;
}

}  // namespace tidemark
