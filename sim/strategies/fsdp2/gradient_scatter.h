// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sim/lower/data_parallel.h"
#include "sim/strategies/fsdp2/units.h"

namespace tidemark {

/// With replicas of the shards (HSDP): behind which reduce-scatters the replicas' shards are all-reduced.
enum class AllReduceWhen : std::uint8_t {
  every_scatter,    ///< fully_shard as it is
  last_microbatch,  ///< set_requires_all_reduce(is_last); partial sums are kept in the reduce dtype until then
};

/// What fully_shard does to a unit's gradients behind its backward, in the order of
/// torch/distributed/fsdp/_fully_shard (_fsdp_param_group.py: post_backward and finalize_backward;
/// _fsdp_collectives.py: foreach_reduce).
///
/// Those of one unit are under way at most, one for each of its groups: the compute stream waits for the previous
/// unit's before it packs the first of this one's gradients. The output is cast to the shards' dtype and becomes the
/// sharded gradient, or is added to it. With replicas, outputs of microbatches that do not all-reduce are added up in
/// `partial`; an all-reduced output stays allocated until the end of its backward pass, unless it is itself the sharded
/// gradient.
///
/// With shards in host memory (`optimizer_step.offload`) what was reduced goes there over the host link, one parameter
/// after another, behind the reduction and on its stream, and leaves the device. Where there is a sharded gradient
/// already, the host waits for each, and adds it up by itself, while nothing is issued; else it waits at the
/// end of the backward pass (foreach_reduce: non_blocking; finalize_backward: grad_offload_event).
///
/// Left out: a gradient that is waited for comes into memory that is not pinned, at less than the link's rate.
///
/// Where 1/N sits: in the collectives (average), unless `loss_scale` is global-tokens, which is
/// set_gradient_divide_factor(1.0): sums. An fp16 reduction divides by a power of two near the root of N before it, and
/// by the rest behind it.
class GradientScatter {
 public:
  /// `stored`: dtype of the shards.
  GradientScatter(Role& role, const Units& units, DType stored, AllReduceWhen all_reduce_when);

  /// What is done to a group's sharded gradient as soon as there is one, on stream `behind`: the parameters'
  /// post-accumulate-grad hooks. It takes the gradient.
  using Hook = std::function<void(const ParameterGroup& group, StreamId behind)>;
  void SetHook(Hook hook) { hook_ = std::move(hook); }

  /// Takes and frees a gradient of a group before the others exist, which Scatter will be given without it. It is in
  /// the reduce dtype.
  void PackAhead(const ParameterGroup& group, const BufferRef& gradient);
  /// Takes and frees `gradients`.
  void Scatter(const Microbatch& microbatch, const ParameterGroup& group, const std::vector<BufferRef>& gradients);
  /// The compute stream waits for the reduce-scatters under way, whose inputs go.
  void FreeScattered();
  void EndBackward(const Microbatch& microbatch);
  /// Frees what the window that `last` belongs to has left.
  void Discard(const Microbatch& last);
  /// zero_grad: frees the sharded gradients, or zeroes them (`buffers.set_to_none`), so that they are added to from
  /// then on.
  void ZeroSharded();
  /// Whether there are sharded gradients when a window begins.
  bool KeepsSharded() const { return kept_; }

  /// What holds the sharded gradients of a group: one buffer, or in host memory one for each parameter.
  std::vector<BufferRef> Sharded(const ParameterGroup& group) const;
  /// The one that holds a parameter's.
  BufferRef ShardedOf(const ParameterAt& at) const;

  void AppendKey(std::int64_t position, std::vector<std::int64_t>& key) const;
  void Shift(std::int64_t blocks);

 private:
  struct OnMesh {
    RunBuffers packed, input, output, partial, cast, sharded;
    ParameterTable on_host, arriving;  ///< in place of `sharded`, and what is added to it
  };

  void Declare(std::size_t mesh);
  BufferRef Ref(RunBuffers OnMesh::*which, const ParameterGroup& group) const {
    return role_.Ref(buffers_[group.mesh].*which, group.unit);
  }
  bool AllReduces(const Microbatch& microbatch) const;
  bool HasPartial(const Microbatch& microbatch) const;
  bool HasSharded(const Microbatch& microbatch) const;
  bool OutputIsSharded(const Microbatch& microbatch) const;
  BufferRef OutputOf(const Microbatch& microbatch, const ParameterGroup& group) const;
  Reduction Operation() const;
  /// That a mean is over. Where there are two meshes, it is none (strategy_fsdp2.cc).
  std::int64_t Ranks() const { return units_.meshes.front().shards * replicas_; }
  std::int64_t PreDivisor() const;

  void Pack(const std::vector<BufferRef>& gradients, const ParameterGroup& group);
  void Reduce(const ParameterGroup& group, const BufferRef& output);
  void AllReduce(const ParameterGroup& group, const BufferRef& output);
  void TakeShard(const Microbatch& microbatch, const ParameterGroup& group, const BufferRef& output);
  void SendToHost(const ParameterGroup& group, const BufferRef& output, bool adds);
  void FreeOrZero();

  Role& role_;
  const Units& units_;
  const Precision& precision_;
  const DType stored_;
  const std::int64_t replicas_;
  const AllReduceWhen all_reduce_when_;
  const bool sums_tokens_;  ///< the loss holds 1/N
  const bool offloads_;     ///< sharded gradients lie in host memory
  bool kept_;               ///< sharded gradients of earlier windows, zeroed
  Hook hook_;
  GroupId replica_group_;
  StreamId scatter_stream_, all_reduce_stream_;
  StreamId behind_;  ///< the stream of what follows the last collective
  std::vector<OnMesh> buffers_;
  std::vector<ParameterGroup> scattering_;  ///< reduce-scatters whose inputs are still held
  std::int64_t packed_ahead_ = 0;           ///< elements that the next scatter's input has already
};

}  // namespace tidemark
