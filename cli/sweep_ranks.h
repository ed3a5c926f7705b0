// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "profiler/comm/communicator.h"
#include "profiler/comm/shared_counter.h"

namespace tidemark {

/// The processes that price one sweep together: those that mpirun or srun has started, or this one alone.
class SweepRanks {
 public:
  static Result<SweepRanks> Meet();

  bool first() const { return !world_ || world_->rank() == 0; }
  bool several() const { return world_ && world_->size() > 1; }

  /// All ranks come here, and none goes on before. The worst of what they bring: on a rank that brings no failure of
  /// its own, that another has failed.
  Status Gather(Status own);

  /// The next of `chunks` that no rank has taken; all ranks pass the same. Nothing: there is none.
  Result<std::optional<std::int64_t>> Next(const std::vector<std::int64_t>& chunks);

 private:
  SweepRanks() = default;

  std::unique_ptr<World> world_;  ///< nothing: one process that nobody has launched
  std::unique_ptr<SharedCounter> counter_;
  std::int64_t taken_ = 0;  ///< without the others
};

}  // namespace tidemark
