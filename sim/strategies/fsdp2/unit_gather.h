// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/lower/data_parallel.h"
#include "sim/strategies/fsdp2/units.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// The parameters of fully_shard's units: shards, which stay, and unsharded copies, gathered before use and freed
/// behind it. Order of allocations and frees as in torch/distributed/fsdp/_fully_shard (_fsdp_param_group.py: unshard,
/// wait_for_unshard, reshard; _fsdp_state.py: prefetching).
///
/// Forward: cast and gather buffer on the copy-in stream, the gather on its own; only then does the previous unit's
/// gather buffer go back, so that this copy-in could not land in it; copy-out. Backward: the gather buffer goes back at
/// once. `shard.prefetch_forward` further units are gathered behind the copy-out of a forward pass, and
/// `shard.prefetch_backward` lower ones in a backward pass (1 is what fully_shard does by itself).
///
/// Each parameter of a unit has a shard and an unsharded copy of its own, padded like all shards together
/// (_fsdp_param.py, init_all_gather_outputs); cast and gather buffer are one for the unit. Left out: weights that are
/// cut by another dimension than the first are copied once more behind their gather and in front of their scatter.
///
/// A unit's groups are gathered, copied out and resharded one behind the other (_fsdp_state.py, _pre_forward,
/// _post_forward, _pre_backward), and prefetched in the order of the pass. A unit in front of one with two groups
/// prefetches both, as torchtitan tells it to; what fully_shard does by itself is to prefetch the second alone
/// (_backward_prefetch).
///
/// A group on one rank gathers nothing (wait_for_unshard, PyTorch 2.15): one parameter after another is cast,
/// while the one before is still bound to the loop's variable, and copied; the next gather waits for that.
///
/// Shards in host memory (`optimizer_step.offload`: CPUOffloadPolicy) come over the host link before each gather, one
/// after another, in the dtype that they are kept in: each is brought, cast into memory of its own, and dropped; all
/// casts go behind the copy-in (_fsdp_param.py, all_gather_inputs; _fsdp_collectives.py, _get_param_all_gather_inputs).
/// Pinned memory (`pin_memory`) is assumed.
class UnitGather {
 public:
  UnitGather(Role& role, const Units& units);

  /// The root's pre-forward: gathers wait for what the compute stream was given, the optimizer's update above all.
  void BeginForward();
  void BeforeForward(const Microbatch& microbatch, std::int64_t position);
  void AfterForward(std::int64_t position);
  void EndForward();
  void BeforeBackward(std::int64_t position);
  /// A loss in chunks calls the head by itself, behind the forward pass of its unit, which a norm in front belongs to:
  /// between the two, and behind the loss, the head is resharded, and while it is called nothing is prefetched. (Not
  /// modelled of settings that keep units gathered behind a backward pass, as in pipelines: there it stays.)
  bool LossCallsHead() const { return loss_calls_head_; }
  /// Gathers a unit that is not there, and nothing else.
  void Unshard(std::int64_t position);
  /// Frees the unsharded parameters of a unit.
  void Reshard(std::int64_t unit);
  void Reshard(const ParameterGroup& group) {
    units_.ForEachOf(role_, group, [&](const ParameterAt& at) { role_.Free(Unsharded(at)); });
  }
  /// Frees those of all units.
  void ReshardAll();

  BufferRef Shard(const ParameterAt& at) const { return buffers_[units_.GroupOf(role_, at).mesh].shards(role_, at); }
  BufferRef Unsharded(const ParameterAt& at) const { return unsharded_(role_, at); }
  /// dtype of the shards: the parameters' original one.
  DType StoredType() const { return precision_.master.value_or(precision_.params); }

  /// For how many blocks from `position` on the hooks above look at no block beyond the run.
  std::int64_t BlocksAlike(std::int64_t position) const;
  void AppendKey(std::int64_t position, std::vector<std::int64_t>& key) const;
  void Shift(std::int64_t blocks);

 private:
  void Declare(std::size_t mesh);
  bool ReshardsAfterForward(std::int64_t position) const;
  std::int64_t Reach() const;
  bool Gathers() const;
  EventId Gathered(const ParameterGroup& group);
  void Gather(const ParameterGroup& group);
  void Unpack(const ParameterGroup& group);
  bool Casts() const { return precision_.params != StoredType(); }
  /// Whether a gather's input has memory of its own.
  bool MakesInputs() const { return offloads_ || Casts(); }
  BufferRef InputOf(const ParameterAt& at, StreamId stream);
  std::vector<BufferRef> InputsOf(const ParameterGroup& group);
  void CopyAlone(const ParameterGroup& group);
  /// No gather begins before what was copied last.
  void AwaitUnpacked();
  void FreeGathered();
  void PrefetchForward(std::int64_t position);
  void PrefetchBackward(std::int64_t position);

  Role& role_;
  const Units& units_;
  const tidemark::Shard& settings_;
  const Precision& precision_;
  const bool loss_calls_head_;
  const bool offloads_;  ///< shards lie in host memory
  StreamId copy_in_stream_, gather_stream_;
  struct OnMesh {
    RunBuffers cast, gathered;
    ParameterTable shards;
    ParameterTable brought;    ///< from the host
    ParameterTable cast_each;  ///< of one rank, or of what is brought
  };
  std::vector<OnMesh> buffers_;
  ParameterTable unsharded_;

  bool forward_ = false;  ///< the direction of the walk
  // Under way:
  std::optional<ParameterGroup> gathered_;  ///< gather buffer not given back yet
  std::optional<std::int64_t> ahead_;       ///< the furthest unit gathered ahead of its use
};

}  // namespace tidemark
