// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "base/result.h"
#include "sim/sweep/segment.h"

namespace tidemark {

/// The segments of one sweep, a file per chunk. What is in it survives whoever wrote it.
class SegmentFolder {
 public:
  /// `sweep` says which sweep it is. Refuses one that holds segments already unless `resume`, and then one that holds
  /// those of another sweep. Creates the folder.
  static Result<SegmentFolder> Open(std::string path, std::uint64_t sweep, bool resume);

  const std::string& path() const { return path_; }
  /// Chunks that were there when it was opened, or were added.
  const std::set<std::int64_t>& chunks() const { return chunks_; }

  /// Several threads may write at once, each another chunk, and say so with Add one at a time.
  Status Write(std::int64_t chunk, const PricedCombinations& priced) const;
  void Add(std::int64_t chunk) { chunks_.insert(chunk); }
  /// Looks again for what others have added.
  Status Refresh();

  /// Calls `row` for every row of all segments, in order (ComesBefore). Memory: a few rows of each segment.
  Status ForEachRow(const std::function<Status(const PricedRow& row)>& row) const;
  /// Calls `refused` for what each segment refused, in the order of the chunks.
  Status ForEachRefused(const std::function<Status(const PricedCombinations& refused)>& refused) const;

  /// Removes the folder and all in it.
  void Remove();

 private:
  SegmentFolder(std::string path, std::uint64_t sweep) : path_(std::move(path)), sweep_(sweep) {}
  std::string FileOf(std::int64_t chunk) const;

  std::string path_;
  std::uint64_t sweep_;
  std::set<std::int64_t> chunks_;
};

}  // namespace tidemark
