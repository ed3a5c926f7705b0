// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tidemark {

/// A YAML document as JSON, keys in their order: plain scalars become null, booleans and numbers as in YAML's core
/// schema, quoted ones stay text. Null for what is not YAML.
nlohmann::ordered_json JsonOfYaml(const std::string& yaml);

}  // namespace tidemark
