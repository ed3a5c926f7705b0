// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tidemark {

/// Configs are small; whoever passes something larger passed the wrong file.
inline constexpr std::int64_t kLargestConfigBytes = std::int64_t{16} << 20;

/// The whole text file (pipes work as well). Refuses a directory, anything that holds more than `largest_bytes`
/// (before reading it, where the size is known), and binary data.
Result<std::string> ReadTextFile(const std::string& path, std::int64_t largest_bytes = kLargestConfigBytes);

/// The same for a file of any bytes. Fails with bad_input as well where it is larger.
Result<std::string> ReadBinaryFile(const std::string& path, std::int64_t largest_bytes);

}  // namespace tidemark
