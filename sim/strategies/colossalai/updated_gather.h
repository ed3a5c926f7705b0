// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/colossalai/flush_plan.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// How LowLevelZeroOptimizer.step gives every rank the parts that the others have updated (low_level_optim.py, step;
/// bookkeeping/tensor_bucket.py). In definition order each rank casts its part of a parameter. A part above the bucket
/// limit is gathered into the parameter itself; the others collect in a bucket, which is flattened, gathered into one
/// buffer N times as large, and copied out parameter by parameter through another copy. All on the compute stream's
/// time: nothing overlaps.
class UpdatedGather {
 public:
  /// `source`: what a block's parts are cast from. `weight`: where the gathered parameter goes.
  using RefAt = std::function<BufferRef(const ParameterAt&)>;

  UpdatedGather(Role& role, StreamId stream, GroupId group, std::int64_t ranks, RefAt source, RefAt weight);
  void Write();

 private:
  /// What happens at one parameter.
  struct Visit {
    ParameterAt at;
    bool direct = false;
    FlushMembers flush;                ///< leaves before this one joins
    std::optional<ParameterAt> freed;  ///< a part that was gathered directly, dropped when the next one exists
  };

  void Plan();
  void DeclareBuffers();
  std::vector<std::int64_t> Key(std::int64_t position) const;
  void WriteBlock(std::int64_t position);
  void WriteVisit(const Visit& visit);
  void GatherDirectly(const ParameterAt& at);
  void GatherBucket(const FlushMembers& members);
  void AllGather(const BufferRef& part, const BufferRef& whole, std::int64_t elements);

  bool Casts() const;
  std::int64_t PartOf(const Parameter& parameter) const { return CeilDiv(parameter.elements, ranks_); }
  BufferRef Part(const ParameterAt& at) const { return Casts() ? parts_(role_, at) : source_(at); }
  BufferRef Flat(const std::vector<BufferId>& buffers, const FlushPlace& place) const {
    return {buffers[place.shape], {role_.At(place.anchor.position), Index{}}};
  }

  Role& role_;
  StreamId stream_;
  GroupId group_;
  std::int64_t ranks_;
  RefAt source_, weight_;
  std::optional<FlushPlan> plan_;
  std::vector<std::vector<Visit>> visits_;  ///< by position
  FlushMembers left_;                       ///< gathered last
  std::optional<ParameterAt> last_direct_;
  ParameterTable parts_, copies_;
  std::vector<BufferId> flat_, gathered_;  ///< by shape
};

}  // namespace tidemark
