// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/deepspeed/zero3_fetch.h"

namespace tidemark {

/// What each run's partitions hold: this rank's part of every trained parameter of a block, each flattened and padded
/// by itself (deepspeed/runtime/zero/partition_parameters.py, _partition_param).
std::vector<Holding> PartitionsOf(const Role& role, bool masters);

/// ZeRO-3's weights: each rank keeps its partition of every parameter and gathers whole ones around the modules that
/// use them, as the coordinator plans it (zero3_fetch.h).
///
/// Differences from DeepSpeed: a parameter that a coalesced gather left unpadded is counted padded to the ranks, as one
/// gathered alone is. The gather stream waits for the kernels that read a parameter before that is freed (DeepSpeed
/// uses record_stream), and the host does not wait where more than two gathers are under way. Hooks of modules without
/// parameters of their own, which prefetch too, are not there.
class Zero3Fetcher {
 public:
  static constexpr std::int64_t kPlans = 3;  ///< recording the trace, the first that follows it, all later ones

  Zero3Fetcher(Role& role, GroupId group);

  BufferRef Partition(std::int64_t position) const { return role_.Ref(partitions_, position); }
  BufferRef Weight(const ParameterAt& at) const;

  void BeginMicrobatch();
  void BeforeAction(std::int64_t position, std::size_t action);
  void AfterAction(std::int64_t position, std::size_t action);
  void EndBackward();
  /// The optimizer begins by releasing everything, and ends by gathering what persists.
  void ReleasePersistent();
  void GatherPersistent();
  void FollowUpdate();

  /// Which plan the next microbatch has.
  std::int64_t NextPlan() const;
  /// What is fetched and released at `position` in that plan, relative to it.
  void Describe(std::int64_t plan, std::int64_t position, bool backward, std::vector<std::int64_t>& description) const;

 private:
  void Declare();
  const FetchPlan& plan() const { return plans_[static_cast<std::size_t>(plan_)]; }
  /// Sets are named by their place in the plan under way.
  void Gather(std::size_t set);
  void Land(std::size_t set);
  BufferRef Flat(std::size_t set);
  BufferId FlatBufferOf(const GatherSet& set);
  Holding HoldsAll(const GatherSet& set) const;
  bool EndsGathered(std::int64_t member) const;
  void FreeAll(const std::vector<std::int64_t>& members);
  std::int64_t Padded(std::int64_t member) const;
  const ParameterAt& At(std::int64_t member) const { return trace_.parameters[static_cast<std::size_t>(member)].at; }
  void EmitGather(std::int64_t elements, const std::vector<BufferRef>& from, const BufferRef& to);
  template <class Visit>
  void EachPersistent(Visit visit);

  Role& role_;
  std::int64_t ranks_;
  bool overlaps_;
  ModuleTrace trace_;
  std::array<FetchPlan, kPlans> plans_;
  std::array<std::vector<BufferId>, kPlans> flat_buffers_;  ///< by plan and set, once somebody asked
  std::int64_t plan_ = 0, microbatches_ = 0;
  StreamId stream_;
  GroupId group_;
  RunBuffers partitions_;
  std::vector<std::vector<BufferId>> weights_;  ///< by run and parameter
  /// Of flat gathers that begin with one parameter and have one size.
  struct FlatBuffer {
    std::int64_t copy = 0;
    Holding holds;
    BufferId buffer;
  };
  std::map<std::tuple<std::size_t, std::uint32_t, std::int64_t>, std::vector<FlatBuffer>> flats_;
};

}  // namespace tidemark
