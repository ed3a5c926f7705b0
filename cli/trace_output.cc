// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_output.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/write_file.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

bool Grows(const std::string& path) {
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  return path != "-" && (!fs::exists(status) || fs::is_regular_file(status));
}

std::string FileOf(const std::string& path, std::int64_t rank) {
  return rank == 0 ? path : fmt::format("{}.rank{}", path, rank);
}

}  // namespace

Result<TraceOutput> TraceOutput::Open(const std::string& path, std::int64_t rank) {
  TraceOutput output;
  output.path_ = FileOf(path, rank);
  if (!Grows(output.path_)) {
    return output;
  }
  Result<TraceWriter> writer = TraceWriter::Open(output.path_);
  if (writer) {
    output.writer_ = std::move(*writer);
  } else if (rank == 0) {
    return writer.error();
  }
  return output;
}

void TraceOutput::Keep(const Trace& so_far) {
  if (writer_) {
    [[maybe_unused]] const Status kept = writer_->Append(so_far);  // it remembers what failed
  }
}

Status TraceOutput::Finish(std::span<const Trace> all) {
  if (!writer_) {
    TIDEMARK_ASSIGN(const auto format, FindTraceFormat("tidemark"));
    TIDEMARK_ASSIGN(const std::string bytes, format->Write(all));
    return WriteFile(path_, bytes);
  }
  for (const Trace& trace : all) {
    TIDEMARK_TRY(writer_->Append(trace));
    TIDEMARK_TRY(writer_->EndTrace());
  }
  return writer_->Close();
}

void TraceOutput::Discard() {
  if (writer_) {
    std::error_code none;
    fs::remove(path_, none);
  }
}

std::string TraceOutput::LeftBehind(const std::string& path, std::int64_t ranks) {
  if (path.empty() || !Grows(path)) {
    return {};
  }
  const std::string others = ranks == 1   ? ""
                             : ranks == 2 ? fmt::format(" and {}", FileOf(path, 1))
                                          : fmt::format(", {} to {}", FileOf(path, 1), FileOf(path, ranks - 1));
  return fmt::format("tidemark report reads what was recorded until then: {}{}", path, others);
}

}  // namespace tidemark
