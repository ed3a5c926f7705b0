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

/// By how a file begins.
Result<std::unique_ptr<TraceFormat>> Recognise(std::string_view bytes) {
  auto formats = MakeTraceFormats();
  for (auto& format : formats) {
    if (format->reads() && format->Sniff(bytes.substr(0, kHead))) {
      return std::move(format);
    }
  }
  const std::string known =
      fmt::format("formats that can be read: {}", fmt::join(Names(formats, &TraceFormat::reads), ", "));
  return bytes.empty() ? BadInput("the file is empty", known)
                       : BadInput("this is not a trace file of a known format", known);
}

Result<TraceFile> Read(const TraceFormat& format, std::string_view bytes) {
  TIDEMARK_ASSIGN(TraceFile file, format.Read(bytes));
  file.format = format.name();
  return file;
}

}  // namespace

Result<TraceFile> ReadTraces(std::string_view bytes) {
  if (!IsGzip(bytes)) {
    TIDEMARK_ASSIGN(const auto format, Recognise(bytes));
    return Read(*format, bytes);
  }
  TIDEMARK_ASSIGN(const std::string start, InflatedStart(bytes, kHead));
  if (IsGzip(start)) {
    return BadInput("this gzip file holds another gzip file", "unpack it once");
  }
  TIDEMARK_ASSIGN(const auto format, Recognise(start));
  TIDEMARK_ASSIGN(const std::string inflated, Inflated(bytes, LargestInflated()));
  return Read(*format, inflated);
}

bool IsTrace(std::string_view head) {
  if (!IsGzip(head)) {
    return Recognise(head).ok();
  }
  const Result<std::string> start = InflatedStart(head, kHead);
  return start && Recognise(*start);
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
