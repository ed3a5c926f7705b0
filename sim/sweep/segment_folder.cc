// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/segment_folder.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <queue>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tidemark {
namespace {

constexpr std::string_view kPrefix = "chunk-", kEnding = ".segment";

/// The chunk that a file is named after; nothing for any other file.
std::optional<std::int64_t> ChunkOf(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kEnding)) {
    return std::nullopt;
  }
  std::int64_t chunk = 0;
  const char* const end = name.data() + name.size() - kEnding.size();
  const auto [at, fault] = std::from_chars(name.data() + kPrefix.size(), end, chunk);
  return fault == std::errc() && at == end ? std::optional(chunk) : std::nullopt;
}

}  // namespace

Result<SegmentFolder> SegmentFolder::Open(std::string path, std::uint64_t sweep, bool resume) {
  SegmentFolder folder(std::move(path), sweep);
  std::error_code code;
  std::filesystem::create_directories(folder.path_, code);
  if (code) {
    return Error{ErrorCode::bad_input, folder.path_, fmt::format("cannot be created ({})", code.message()),
                 "rows are kept there until all are priced"};
  }
  TIDEMARK_TRY(folder.Refresh());
  if (!resume && !folder.chunks_.empty()) {
    return Error{ErrorCode::bad_input, folder.path_,
                 fmt::format("holds {} segments of a sweep that was interrupted", Grouped(std::ssize(folder.chunks_))),
                 "--resume goes on with it; remove the folder to begin anew"};
  }
  for (const std::int64_t chunk : folder.chunks_) {
    TIDEMARK_ASSIGN(SegmentReader segment, SegmentReader::Open(folder.FileOf(chunk), sweep));
    TIDEMARK_TRY(segment.Check());
  }
  return folder;
}

Status SegmentFolder::Refresh() {
  std::error_code code;
  std::filesystem::directory_iterator files(path_, code);
  if (code) {
    return Error{ErrorCode::bad_input, path_, fmt::format("cannot be read ({})", code.message()), ""};
  }
  for (const std::filesystem::directory_entry& file : files) {
    if (const auto chunk = ChunkOf(file.path().filename().string())) {
      chunks_.insert(*chunk);
    }
  }
  return Done{};
}

Status SegmentFolder::Write(std::int64_t chunk, const PricedCombinations& priced) const {
  return WriteSegment(FileOf(chunk), sweep_, priced);
}

Status SegmentFolder::ForEachRow(const std::function<Status(const PricedRow&)>& row) const {
  struct Open {
    SegmentReader reader;
    PricedRow row;
  };
  std::vector<Open> segments;
  for (const std::int64_t chunk : chunks_) {
    TIDEMARK_ASSIGN(SegmentReader reader, SegmentReader::Open(FileOf(chunk), sweep_));
    Open open{std::move(reader), {}};
    TIDEMARK_ASSIGN(const bool any, open.reader.Next(open.row));
    if (any) {
      segments.push_back(std::move(open));
    }
  }
  const auto later = [&](std::size_t a, std::size_t b) { return ComesBefore(segments[b].row, segments[a].row); };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> queue(later);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    queue.push(i);
  }
  while (!queue.empty()) {
    const std::size_t first = queue.top();
    queue.pop();
    TIDEMARK_TRY(row(segments[first].row));
    TIDEMARK_ASSIGN(const bool more, segments[first].reader.Next(segments[first].row));
    if (more) {
      queue.push(first);
    }
  }
  return Done{};
}

Status SegmentFolder::ForEachRefused(const std::function<Status(const PricedCombinations&)>& refused) const {
  for (const std::int64_t chunk : chunks_) {
    TIDEMARK_ASSIGN(SegmentReader reader, SegmentReader::Open(FileOf(chunk), sweep_));
    TIDEMARK_ASSIGN(const PricedCombinations of_chunk, reader.Refused());
    TIDEMARK_TRY(refused(of_chunk));
  }
  return Done{};
}

void SegmentFolder::Remove() {
  std::error_code code;
  std::filesystem::remove_all(path_, code);
  chunks_.clear();
}

std::string SegmentFolder::FileOf(std::int64_t chunk) const {
  return fmt::format("{}/{}{:06}{}", path_, kPrefix, chunk, kEnding);
}

}  // namespace tidemark
