// SPDX-License-Identifier: Apache-2.0
#include "reports/check/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tidemark {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kDeepest = 64;         ///< of any document of ours; deeper ones are not kept
constexpr std::size_t kWidth = 180;  ///< of a line
constexpr std::string_view kIndent = "  ";

Result<Json> MemberAt(const Json& object, const char* key, Json::value_t type, const char* expected) {
  const auto found = object.find(key);
  if (found == object.end() || found->type() != type) {
    return BadKey(key,
                  fmt::format("expected {}, found {}", expected, found == object.end() ? "none" : found->type_name()));
  }
  return Json(*found);
}

std::string Scalar(const OrderedJson& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

template <class WriteValue>
std::string Members(const OrderedJson& json, const std::string& separator, const WriteValue& write) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : json.items()) {
    const std::string name = json.is_object() ? Scalar(OrderedJson(key)) + ": " : "";
    parts.push_back(name + write(value, name.size() + 1));
  }
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string InBrackets(const OrderedJson& json, const std::string& members) {
  return json.is_object() ? fmt::format("{{{}}}", members) : fmt::format("[{}]", members);
}

std::string OneLine(const OrderedJson& json) {
  if (!json.is_structured()) {
    return Scalar(json);
  }
  return InBrackets(json, Members(json, ", ", [](const OrderedJson& value, std::size_t) { return OneLine(value); }));
}

/// `taken`: columns in front of it on its first line, beside the indent.
std::string Lines(const OrderedJson& json, const std::string& indent, std::size_t taken) {
  std::string line = OneLine(json);
  if (!json.is_structured() || json.empty() || indent.size() + taken + line.size() <= kWidth) {
    return line;
  }
  const std::string inner = indent + std::string(kIndent);
  const std::string members = Members(
      json, ",\n" + inner, [&](const OrderedJson& value, std::size_t before) { return Lines(value, inner, before); });
  return InBrackets(json, fmt::format("\n{}{}\n{}", inner, members, indent));
}

}  // namespace

Result<Json> ParseDocument(std::string_view text, const std::string& path, const std::string& schema) {
  Json json;
  try {
    json =
        Json::parse(text.begin(), text.end(), [](int depth, Json::parse_event_t, Json&) { return depth < kDeepest; });
  } catch (const Json::out_of_range&) {
    return Result<Json>(BadInput("has a number that is beyond all numbers of JSON's readers")).At(path);
  } catch (const Json::parse_error& error) {
    const auto until = text.substr(0, std::min(error.byte, text.size()));
    Error bad = BadInput("is not valid JSON", "is the file complete, and are there no marks of a merge in it?");
    bad.where = fmt::format("{}:{}", path, std::count(until.begin(), until.end(), '\n') + 1);
    return bad;
  }
  const auto found = json.is_object() ? json.find("schema") : json.end();
  if (!json.is_object() || found == json.end() || *found != schema) {
    Error bad = BadInput(fmt::format("is no {}", schema),
                         found == json.end() || !found->is_string()
                             ? "it has no \"schema\""
                             : fmt::format("its schema is '{}'", found->get<std::string>().substr(0, 60)));
    bad.where = path;
    return bad;
  }
  return json;
}

Result<std::int64_t> NumberAt(const Json& object, const char* key) {
  const auto found = object.find(key);
  const bool whole = found != object.end() && found->is_number_unsigned();
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  if (!whole || found->get<std::uint64_t>() > kMost) {
    return BadKey(key, "expected a whole number that is not negative");
  }
  return static_cast<std::int64_t>(found->get<std::uint64_t>());
}

Result<std::string> TextAt(const Json& object, const char* key) {
  TIDEMARK_ASSIGN(const Json text, MemberAt(object, key, Json::value_t::string, "a text"));
  return text.get<std::string>();
}

Result<Json> ListAt(const Json& object, const char* key) {
  return MemberAt(object, key, Json::value_t::array, "a list");
}

Result<Json> ObjectAt(const Json& object, const char* key) {
  return MemberAt(object, key, Json::value_t::object, "an object");
}

std::string ReviewableText(const OrderedJson& json) { return Lines(json, "", 0) + "\n"; }

}  // namespace tidemark
