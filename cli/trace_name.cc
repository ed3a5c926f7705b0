// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/text.h"
#include "cli/shell_word.h"
#include "traces/formats/trace_archive.h"

namespace tidemark {
namespace {

constexpr std::array<std::string_view, 6> kCompressed = {".gz", ".zst", ".xz", ".bz2", ".lz4", ".z"};

bool HasEnding(const TraceFormat& format, std::string_view ending) {
  const std::vector<std::string_view> endings = format.endings();
  return (ending == kArchiveEnding && format.archives()) ||
         std::find(endings.begin(), endings.end(), ending) != endings.end();
}

bool HasAnotherFormatsEnding(const std::string& path) {
  const std::vector<std::unique_ptr<TraceFormat>> formats = FormatsOfEnding(path);
  return !formats.empty() &&
         std::none_of(formats.begin(), formats.end(), [](const auto& format) { return format->name() == "tidemark"; });
}

/// The same with an ending of Tidemark's own format, of a file that does not exist: one that does may be what is read.
std::filesystem::path OwnName(std::filesystem::path path) {
  std::error_code none;
  path.replace_extension(".trace");
  return std::filesystem::exists(path, none) ? path.replace_extension(".tidemark") : path;
}

}  // namespace

std::string EndingOf(const std::string& path) { return LowerCase(std::filesystem::path(path).extension().string()); }

std::vector<std::unique_ptr<TraceFormat>> WrittenFormats() {
  std::vector<std::unique_ptr<TraceFormat>> formats = MakeTraceFormats();
  std::erase_if(formats, [](const auto& format) { return !format->writes(); });
  return formats;
}

std::vector<std::unique_ptr<TraceFormat>> FormatsOfEnding(const std::string& path) {
  std::vector<std::unique_ptr<TraceFormat>> formats = WrittenFormats();
  std::erase_if(formats, [&](const auto& format) { return !HasEnding(*format, EndingOf(path)); });
  return formats;
}

Status CheckTraceName(const std::string& path) {
  if (std::ranges::find(kCompressed, EndingOf(path)) != kCompressed.end()) {
    std::error_code none;
    const std::filesystem::path plain = std::filesystem::path(path).replace_extension();
    const bool serves = !HasAnotherFormatsEnding(plain.string()) && !std::filesystem::exists(plain, none);
    const std::string own = ShellWord((serves ? plain : OwnName(plain)).string());
    return BadInput(
        fmt::format("--trace {}: what is written is not compressed", path),
        fmt::format("--trace {0}, and behind that: gzip {0} (what gzip has compressed is read as well)", own));
  }
  if (!HasAnotherFormatsEnding(path)) {
    return Done{};
  }
  return BadInput(fmt::format("--trace {}: a file of Tidemark's own format is written, and {} is the ending of {}",
                              path, EndingOf(path), FormatsOfEnding(path).front()->name()),
                  fmt::format("--trace {0}, and behind that: tidemark convert {0} -o {1}",
                              ShellWord(OwnName(path).string()), ShellWord(path)));
}

}  // namespace tidemark
