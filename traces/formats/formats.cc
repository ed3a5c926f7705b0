// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

constexpr std::size_t kHead = 4096;

std::vector<std::string> Names(const std::vector<std::unique_ptr<TraceFormat>>& formats) {
  std::vector<std::string> names;
  for (const auto& format : formats) {
    names.emplace_back(format->name());
  }
  return names;
}

}  // namespace

Result<TraceFile> ReadTraces(std::string_view bytes) {
  const auto formats = MakeTraceFormats();
  for (const auto& format : formats) {
    if (format->Sniff(bytes.substr(0, kHead))) {
      TIDEMARK_ASSIGN(TraceFile file, format->Read(bytes));
      file.format = format->name();
      return file;
    }
  }
  return BadInput("this is not a trace file of a known format",
                  fmt::format("formats that can be read: {}", fmt::join(Names(formats), ", ")));
}

Result<std::unique_ptr<TraceFormat>> FindTraceFormat(std::string_view name) {
  auto formats = MakeTraceFormats();
  const std::vector<std::string> names = Names(formats);
  for (std::size_t i = 0; i < formats.size(); ++i) {
    if (names[i] == name) {
      return std::move(formats[i]);
    }
  }
  const std::string nearest = Nearest(name, names);
  return BadInput(fmt::format("'{}' is not a trace format; expected one of {}", name, fmt::join(names, ", ")),
                  nearest.empty() ? std::string() : fmt::format("did you mean {}?", nearest));
}

}  // namespace tidemark
