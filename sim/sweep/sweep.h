// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "models/job/job_template.h"
#include "sim/sweep/groups.h"
#include "sim/sweep/pricer.h"

namespace tidemark {

/// All combinations of a space, priced chunk by chunk. Which combinations a chunk holds depends on the space alone, so
/// that chunks may be priced in any order, by any number of threads and processes.
class Sweep {
 public:
  Sweep(SweepGroups groups, SweepLimits limits, JobTemplate job);

  const SweepGroups& groups() const { return groups_; }
  std::int64_t size() const { return groups_.space().size(); }
  std::int64_t chunks() const { return (groups_.size() + groups_per_chunk_ - 1) / groups_per_chunk_; }
  /// Combinations of a chunk.
  std::int64_t RowsOf(std::int64_t chunk) const;

  struct Handlers {
    /// The next chunk to price; nothing: there is none. Asked by several threads, one at a time.
    std::function<std::optional<std::int64_t>()> next;
    /// If there is one: gets every chunk that was priced before `done` does, on its thread beside others.
    std::function<Status(std::int64_t chunk, const PricedCombinations& priced)> keep = {};
    /// Hears of every chunk that was priced, one at a time. A failure of either ends the sweep.
    std::function<Status(std::int64_t chunk, PricedCombinations priced)> done;
    /// Asked between groups: true leaves chunks that are not done, and takes no more.
    std::function<bool()> cancelled;
  };
  /// On so many threads; 0: as many as the machine has.
  Status Run(int threads, const Handlers& handlers) const;

  /// Combinations a second on one thread, measured over groups from all over the space for about `seconds`.
  Result<double> MeasureRate(double seconds) const;

 private:
  SweepGroups groups_;
  SweepLimits limits_;
  JobTemplate job_;
  std::int64_t groups_per_chunk_ = 1;
};

}  // namespace tidemark
