// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/text.h"
#include "traces/formats/format.h"
#include "traces/formats/gzip.h"

namespace tidemark {
namespace {

constexpr std::size_t kHead = 4096;
constexpr std::int64_t kLargestInflated = std::int64_t{8} << 30;  ///< bytes

/// What is unpacked is in memory as a whole: at most half of what this machine has.
std::int64_t LargestInflated() {
  return std::min(kLargestInflated, std::int64_t{sysconf(_SC_PHYS_PAGES)} / 2 * sysconf(_SC_PAGESIZE));
}

std::vector<std::string> Names(const std::vector<std::unique_ptr<TraceFormat>>& formats,
                               bool (TraceFormat::*can)() const) {
  std::vector<std::string> names;
  for (const auto& format : formats) {
    if (((*format).*can)()) {
      names.emplace_back(format->name());
    }
  }
  return names;
}

}  // namespace

Result<TraceFile> ReadTraces(std::string_view bytes) {
  if (IsGzip(bytes)) {
    TIDEMARK_ASSIGN(const std::string inflated, Inflated(bytes, LargestInflated()));
    if (IsGzip(inflated)) {
      return BadInput("this gzip file holds another gzip file", "unpack it once");
    }
    return ReadTraces(inflated);
  }
  const auto formats = MakeTraceFormats();
  for (const auto& format : formats) {
    if (format->reads() && format->Sniff(bytes.substr(0, kHead))) {
      TIDEMARK_ASSIGN(TraceFile file, format->Read(bytes));
      file.format = format->name();
      return file;
    }
  }
  return BadInput("this is not a trace file of a known format",
                  fmt::format("formats that can be read: {}", fmt::join(Names(formats, &TraceFormat::reads), ", ")));
}

Result<std::unique_ptr<TraceFormat>> FindTraceFormat(std::string_view name) {
  auto formats = MakeTraceFormats();
  for (auto& format : formats) {
    if (format->name() == name) {
      return std::move(format);
    }
  }
  const std::vector<std::string> written = Names(formats, &TraceFormat::writes);
  const std::string nearest = Nearest(name, written);
  return BadInput(fmt::format("'{}' is not a trace format; expected one of {}", name, fmt::join(written, ", ")),
                  nearest.empty() ? std::string() : fmt::format("did you mean {}?", nearest));
}

}  // namespace tidemark
