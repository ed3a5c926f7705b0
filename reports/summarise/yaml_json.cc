// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/yaml_json.h"

#include <yaml-cpp/yaml.h>

#include <cstdint>

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

/// yaml-cpp marks quoted scalars with the tag "!"; those are text whatever they look like.
Json OfScalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") {
    return text;
  }
  if (text == "true" || text == "false") {
    return text == "true";
  }
  std::int64_t integer = 0;
  double real = 0;
  if (YAML::convert<std::int64_t>::decode(node, integer)) {
    return integer;
  }
  return YAML::convert<double>::decode(node, real) ? Json(real) : Json(text);
}

Json OfNode(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return OfScalar(node);
    case YAML::NodeType::Sequence: {
      Json array = Json::array();
      for (const YAML::Node& item : node) {
        array.push_back(OfNode(item));
      }
      return array;
    }
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& entry : node) {
        object[entry.first.Scalar()] = OfNode(entry.second);
      }
      return object;
    }
    default:
      return nullptr;
  }
}

}  // namespace

Json JsonOfYaml(const std::string& yaml) {
  try {
    return OfNode(YAML::Load(yaml));
  } catch (const YAML::Exception&) {
    return nullptr;
  }
}

}  // namespace tidemark
