// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/configs/value.h"

namespace tidemark {

/// A text with blanks in place of the comments that JSON from other tools often has, // and /* */: YAML has no words
/// for them, and would take them for a part of what follows. All else stays where it is, and so do lines; what does not
/// begin with a brace stays as it is.
std::string WithoutJsonComments(std::string_view text);

/// JSON with comments, and letters of other planes as JSON escapes them. Numbers and truth are text, as ParseConfig has
/// them; a place is that of the whole file. Nothing where it is no such JSON, has a key twice or is nested deeper than
/// 64.
std::optional<ConfigValue> ParseJson(std::string_view text, const std::string& path);

}  // namespace tidemark
