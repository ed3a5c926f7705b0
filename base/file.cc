// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/text.h"

namespace tidemark {
namespace {

/// What a file is read for, as far as messages go.
struct Purpose {
  const char* too_large;  ///< "which no config is"
  const char* instead;    ///< hint for a file that is too large
  const char* inside;     ///< hint for a directory
};

constexpr Purpose kConfig = {"which no config is", "pass the config file itself, not a checkpoint or a log",
                             "pass the config file inside it"};
constexpr Purpose kAnyFile = {"more than can be read", "", "pass a file inside it"};

Error TooLarge(std::int64_t largest_bytes, const Purpose& purpose) {
  return BadInput(fmt::format("is larger than {}, {}", Text(Bytes(largest_bytes)), purpose.too_large), purpose.instead);
}

Result<std::string> Read(const std::string& path, std::int64_t largest_bytes, const Purpose& purpose) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) {
    return BadInput("there is no such file", "the path is relative to the current folder");
  }
  if (fs::is_directory(status)) {
    return BadInput("is a directory; expected a file", purpose.inside);
  }
  if (fs::is_regular_file(status)) {
    const std::uintmax_t n_bytes = fs::file_size(path, code);
    if (!code && n_bytes > static_cast<std::uintmax_t>(largest_bytes)) {
      return TooLarge(largest_bytes, purpose);
    }
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    return BadInput(fmt::format("cannot be opened: {}", std::generic_category().message(errno)));
  }
  std::string text;
  std::array<char, 65536> piece;
  while (const std::size_t n_read = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), n_read);
    if (text.size() > static_cast<std::size_t>(largest_bytes)) {
      return TooLarge(largest_bytes, purpose);
    }
  }
  if (std::ferror(file.get()) != 0) {
    return BadInput(fmt::format("cannot be read: {}", std::generic_category().message(errno)));
  }
  return text;
}

Result<std::string> ReadText(const std::string& path, std::int64_t largest_bytes) {
  TIDEMARK_ASSIGN(std::string text, Read(path, largest_bytes, kConfig));
  if (text.find('\0') != std::string::npos) {
    return BadInput("holds binary data; expected a text file");
  }
  return text;
}

}  // namespace

Result<std::string> ReadTextFile(const std::string& path, std::int64_t largest_bytes) {
  return ReadText(path, largest_bytes).At(path);
}

Result<std::string> ReadBinaryFile(const std::string& path, std::int64_t largest_bytes) {
  return Read(path, largest_bytes, kAnyFile).At(path);
}

}  // namespace tidemark
