// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/lower/alike_blocks.h"
#include "sim/lower/role.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// A stretch of Megatron's gradient buffer that is reduced at once.
struct GradientBucket {
  std::vector<ParameterAt> members;  ///< in the order in which they lie in the buffer
  std::vector<std::int64_t> starts;  ///< of each member, from the start of the bucket
  std::int64_t elements = 0;         ///< with padding
  bool of_experts = false;           ///< which not all ranks that gradients are summed over have
  std::int64_t owned = 0;            ///< of which this rank updates, without padding
  std::int64_t completed_in = 0;     ///< position of the block whose backward pass completes it
  std::size_t slot = 0;              ///< its number among those that this block completes
};

/// The buffers of a bucket's members in a table.
std::vector<BufferRef> MembersIn(const ParameterTable& table, const Role& role, const GradientBucket& bucket);

/// Where Megatron-LM's contiguous gradient buffer holds which gradient, and how it is cut into buckets
/// (megatron/core/distributed/param_and_grad_buffer.py, _ParamAndGradBuffer).
///
/// Trained parameters lie in reverse definition order. A bucket is closed by the parameter with which it has
/// `sync.bucket_elements` or more; 0 stands for max(40,000,000, 1,000,000 * dp). Without overlap, and on all pipeline
/// stages but the first, everything is one bucket. For the distributed optimizer parameters start at multiples of 64
/// elements and buckets end at multiples of lcm(dp, 128); and an embedding whose copy is on another stage is a bucket
/// of its own, so that both copies are cut among the ranks alike.
///
/// Experts that other ranks do not have (layout.ep) lie in a buffer of their own, cut in the same way and divided among
/// the ranks that have them (distributed_data_parallel.py: expert_parallel_buffers); here behind the other one's
/// buckets. All experts of a layer are one parameter of each product, where Megatron-LM has one for each expert: a
/// bucket that one of them would close ends behind all of them.
class GradientBuffer {
 public:
  explicit GradientBuffer(const Role& role);

  /// What a rank keeps masters and moments of, where buckets are divided: its range of the bucket.
  Holding HoldsOwned(const GradientBucket& bucket) const;
  /// How a parameter's buffer lies among the others that travel with it.
  Holding HoldsWhole() const;
  /// Over how many ranks a bucket is reduced.
  std::int64_t RanksOf(const GradientBucket& bucket) const;
  /// From the end of the network on; those of experts come last.
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  /// The number of the bucket that holds a trained parameter.
  std::size_t BucketOf(const ParameterAt& at) const { return bucket_of_.at({at.position, at.parameter}); }
  /// Elements of the buffer that belong to no parameter.
  std::int64_t padding() const { return padding_; }
  /// The buckets of which this gradient is the last to be complete, in a backward pass.
  const std::vector<GradientBucket>& CompletedBy(const ParameterAt& at) const;
  /// The same of all gradients of one block.
  std::vector<GradientBucket> CompletedIn(std::int64_t position) const;

  /// What becomes complete in one block, relative to it.
  std::vector<std::int64_t> Describe(std::int64_t position) const;
  /// As DataParallel::Key and BlocksAlike, for a backward pass that reduces each bucket when it is complete.
  std::vector<std::int64_t> Key(std::int64_t position) const;
  std::int64_t BlocksAlike(std::int64_t position) const;

 private:
  void Cut(bool of_experts);
  void Close(GradientBucket& open, std::int64_t end);
  bool IsOfExperts(const ParameterAt& at) const;
  void FindCompletions();
  bool IsShared(const ParameterAt& at) const;
  std::int64_t AlignmentOf(const GradientBucket& bucket) const;  ///< of where it ends
  std::int64_t Walked(std::int64_t position) const;

  const Role& role_;
  bool divided_;  ///< among the ranks of a distributed optimizer
  std::vector<GradientBucket> buckets_;
  std::map<std::pair<std::int64_t, std::uint32_t>, std::size_t> bucket_of_;  ///< by position, parameter
  std::int64_t padding_ = 0;
  std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<GradientBucket>> completed_;  ///< by position, parameter
  std::vector<AlikeBlocks> alike_;                                                           ///< by run, backwards
};

}  // namespace tidemark
