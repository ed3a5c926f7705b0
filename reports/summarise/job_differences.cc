// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/job_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "reports/summarise/yaml_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

/// "layout.tp" -> "8", for every scalar and list.
void Flatten(const Json& json, const std::string& key, std::map<std::string, std::string>& out) {
  if (!json.is_object()) {
    out[key] = json.is_string() ? json.get<std::string>() : json.dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  for (const auto& [name, value] : json.items()) {
    Flatten(value, key.empty() ? name : fmt::format("{}.{}", key, name), out);
  }
}

}  // namespace

std::vector<JobDifference> CompareJobs(const std::vector<std::string>& jobs) {
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].empty()) {
      return {};
    }
    std::map<std::string, std::string> keys;
    Flatten(JsonOfYaml(jobs[i]), "", keys);
    for (const auto& [key, value] : keys) {
      values[key].resize(jobs.size(), "-");
      values[key][i] = value;
    }
  }
  std::vector<JobDifference> differences;
  for (auto& [key, all] : values) {
    if (std::any_of(all.begin(), all.end(), [&first = all.front()](const auto& value) { return value != first; })) {
      differences.push_back({key, std::move(all)});
    }
  }
  return differences;
}

}  // namespace tidemark
