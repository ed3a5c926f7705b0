// SPDX-License-Identifier: Apache-2.0
#include "cli/load_trace.h"

#include <cstdint>
#include <utility>

#include "base/file.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLargestTraceBytes = std::int64_t{4} << 30;

}  // namespace

Result<ReadTrace> LoadTrace(const std::string& path) {
  TIDEMARK_ASSIGN(const std::string bytes, ReadBinaryFile(path, kLargestTraceBytes));
  Result<TraceFile> read = ReadTraces(bytes);
  if (!read) {
    Error error = read.error();
    if (error.hint.empty()) {
      error.hint = "write the trace again, for example with tidemark predict JOB --trace FILE";
    }
    return Result<ReadTrace>(std::move(error)).At(path);
  }
  TraceFile file = std::move(*read);
  if (file.traces.empty()) {
    return Result<ReadTrace>(BadInput("expected at least one trace, but the file holds none",
                                      "write one with tidemark predict JOB --trace FILE"))
        .At(path);
  }
  return ReadTrace{path, std::move(file)};
}

}  // namespace tidemark
