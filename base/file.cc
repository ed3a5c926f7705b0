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

Error TooLarge(std::int64_t largest_bytes) {
  return BadInput(fmt::format("is larger than {}, which no config is", Text(Bytes(largest_bytes))),
                  "pass the config file itself, not a checkpoint or a log");
}

Result<std::string> Read(const std::string& path, std::int64_t largest_bytes) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) {
    return BadInput("there is no such file", "the path is relative to the current folder");
  }
  if (fs::is_directory(status)) {
    return BadInput("is a directory; expected a file", "pass the config file inside it");
  }
  if (fs::is_regular_file(status)) {
    const std::uintmax_t n_bytes = fs::file_size(path, code);
    if (!code && n_bytes > static_cast<std::uintmax_t>(largest_bytes)) {
      return TooLarge(largest_bytes);
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
      return TooLarge(largest_bytes);
    }
  }
  if (std::ferror(file.get()) != 0) {
    return BadInput(fmt::format("cannot be read: {}", std::generic_category().message(errno)));
  }
  if (text.find('\0') != std::string::npos) {
    return BadInput("holds binary data; expected a text file");
  }
  return text;
}

}  // namespace

Result<std::string> ReadTextFile(const std::string& path, std::int64_t largest_bytes) {
  return Read(path, largest_bytes).At(path);
}

}  // namespace tidemark
