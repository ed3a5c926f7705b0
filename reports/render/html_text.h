// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

/// Text as it stands between tags or in a quoted attribute.
std::string HtmlText(std::string_view text);

}  // namespace tidemark
