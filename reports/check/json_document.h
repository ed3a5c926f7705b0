// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tidemark {

// Reading documents of our own schemas, which people may have edited or merged.

/// Parses the document and checks that it is an object whose "schema" is `schema`. `path` is for messages, with the
/// line where the text stops being JSON.
Result<nlohmann::json> ParseDocument(std::string_view text, const std::string& path, const std::string& schema);

/// Members of an object; the error names the key. A number is whole and not negative.
Result<std::int64_t> NumberAt(const nlohmann::json& object, const char* key);
Result<std::string> TextAt(const nlohmann::json& object, const char* key);
/// A list or an object.
Result<nlohmann::json> ListAt(const nlohmann::json& object, const char* key);
Result<nlohmann::json> ObjectAt(const nlohmann::json& object, const char* key);

/// As people review it: what fits stands on one line of at most 180 columns, all else one member a line. Text that is
/// not UTF-8 comes out with replacement characters.
std::string ReviewableText(const nlohmann::ordered_json& json);

}  // namespace tidemark
