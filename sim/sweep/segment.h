// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/sweep/priced_row.h"
#include "sim/sweep/pricer.h"

namespace tidemark {

// A chunk of a sweep on disk: what became of its combinations, rows in order (ComesBefore). Read by the program that
// wrote it, on the machine that it was written on; anything else is refused.

/// Counts of one segment.
struct SegmentCounts {
  std::int64_t rows = 0, refused = 0, pruned = 0;
};

/// Writes a whole segment or none. `sweep` says which sweep it belongs to. Fails with machine_cannot on a full disk.
Status WriteSegment(const std::string& path, std::uint64_t sweep, const PricedCombinations& priced);

/// A segment, read row by row.
class SegmentReader {
 public:
  /// Refuses what is no whole segment of this sweep.
  static Result<SegmentReader> Open(const std::string& path, std::uint64_t sweep);

  const SegmentCounts& counts() const { return counts_; }
  /// Refuses what is not as it was written. Reads to the end: rows come from another reader.
  Status Check();
  /// The next row; false behind the last. Fails where the file cannot be read.
  Result<bool> Next(PricedRow& row);
  /// All that were refused, and why.
  Result<PricedCombinations> Refused();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  SegmentReader() = default;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  SegmentCounts counts_;
  std::uint64_t checksum_ = 0;
  std::int64_t read_ = 0;
  std::vector<PricedRow> buffer_;
  std::size_t at_ = 0;
};

}  // namespace tidemark
