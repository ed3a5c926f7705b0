// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

/// A field of a line of comma-separated values, quoted where RFC 4180 says that it must be.
std::string CsvField(std::string_view value);

}  // namespace tidemark
