// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace tidemark {

/// A text file that was put into the program when it was built (cmake/embed.cmake).
struct EmbeddedFile {
  std::string_view name;  ///< without folder and extension: "llama-3-8b"
  std::string_view text;
};

}  // namespace tidemark
