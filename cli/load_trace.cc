// SPDX-License-Identifier: Apache-2.0
#include "cli/load_trace.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/text.h"

namespace tidemark {

Result<ReadTrace> LoadTrace(const std::string& path) {
  TellOfLostPages();
  TIDEMARK_ASSIGN(const MappedFile input, MappedFile::Open(path));
  Result<TraceFile> read = ReadTraces(input.bytes());
  if (!read) {
    Error error = read.error();
    if (error.hint.empty()) {
      error.hint = "record or write the trace again; tidemark list formats says what is read";
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

Status CheckRole(const std::string& role, std::span<const ReadTrace> files) {
  std::vector<std::string> known;
  for (const ReadTrace& file : files) {
    for (const Trace& trace : file.file.traces) {
      if (role.empty() || trace.role == role) {
        return Done{};
      }
      known.push_back(trace.role);
    }
  }
  const std::string nearest = Nearest(role, known);
  return BadInput(fmt::format("--role: no trace has a role '{}'", role),
                  nearest.empty() ? fmt::format("the first one is '{}'", known.front())
                                  : fmt::format("did you mean '{}'?", nearest));
}

}  // namespace tidemark
