// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/colossalai/flush_plan.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// Elements of a parameter padded to a multiple of the group, as LowLevelZeroOptimizer cuts it.
inline std::int64_t PaddedTo(std::int64_t ranks, const Parameter& parameter) {
  return CeilDiv(parameter.elements, ranks) * ranks;
}

/// What a flat buffer of LowLevelZeroOptimizer holds: each member cut between the ranks, rank after rank (Parts::all),
/// or this rank's parts.
inline Holding HoldsParts(std::int64_t ranks, Parts parts, std::vector<HeldRun> of = {}) {
  return {.cut = Cut::elements, .ranks = ranks, .parts = parts, .of = std::move(of)};
}

/// LowLevelZeroOptimizer._run_reduction (low_level_optim.py; bookkeeping/bucket_store.py): what becomes of the
/// gradients of one bucket.
///
/// They are flattened, rank by rank, divided by N, cast to the communication dtype where that differs, and reduced on a
/// stream of their own when communication overlaps. The slices in the gradient store then *view* the result, so the
/// first flush of a window allocates what stays: the whole flat buffer (stage 1) or the own part (stage 2). Later ones
/// are added to it and dropped. Tensors of the compute stream are recorded on the communication stream, so dropping
/// them waits for nothing. With one rank and a bucket of one parameter the real flat buffer is the gradient itself;
/// here it is a copy.
class ZeroFlush {
 public:
  ZeroFlush(Role& role, StreamId stream, GroupId group, std::int64_t ranks, const FlushPlan& plan);

  /// `first` of the window. `gradients(at)`: the complete gradients; they are freed.
  template <class GradientAt>
  void Write(const FlushMembers& members, bool first, GradientAt gradient) {
    std::vector<BufferRef> gradients;
    for (const ParameterAt& member : members) {
      gradients.push_back(Pad(member, gradient(member)));
    }
    Reduce(plan_.PlaceOf(members), first, gradients);
  }

  BufferRef Store(const FlushPlace& place) const { return At(store_, place); }

 private:
  bool Stage2() const { return role_.job.axes.shard.gradients; }
  bool Overlaps() const { return role_.job.axes.sync.overlap; }
  bool Casts() const { return role_.job.axes.precision.reduce != role_.job.axes.precision.gradients; }
  /// Where casts and additions run, and where what they make is born.
  StreamId Beside() const { return Overlaps() ? stream_ : role_.compute; }
  BufferRef At(const std::vector<BufferId>& buffers, const FlushPlace& place) const {
    return {buffers[place.shape], {role_.At(place.anchor.position), Index{}}};
  }

  BufferRef Pad(const ParameterAt& at, const BufferRef& gradient);
  void Reduce(const FlushPlace& place, bool first, const std::vector<BufferRef>& gradients);
  void AllReduce(const BufferRef& carrier);
  void ReduceScatter(const BufferRef& carrier, const BufferRef& received);
  void Communicate(Collective collective);
  /// A buffer that the compute stream made and the other one may still use.
  void Drop(const BufferRef& ref) { role_.builder.Emit(tidemark::Free{ref, Overlaps()}); }

  Role& role_;
  StreamId stream_;
  GroupId group_;
  std::int64_t ranks_;
  const FlushPlan& plan_;
  ParameterTable padded_;
  std::vector<BufferId> flat_, wire_, received_, result_, store_;  ///< by shape
};

}  // namespace tidemark
