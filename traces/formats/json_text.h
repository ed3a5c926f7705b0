// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

/// A string as JSON, with its quotes. Bytes of foreign names that are no UTF-8 become U+FFFD.
std::string JsonText(std::string_view text);

}  // namespace tidemark
