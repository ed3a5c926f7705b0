// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/strategies/megatron/gradient_buffer.h"

namespace tidemark {

/// Megatron's reduce_scatter_with_fp32_accumulation (a file of this name in megatron/core/distributed): every rank gets
/// its part of a bucket from all ranks by an all-to-all in the buffer's dtype, sums the parts in fp32 behind it, and
/// stores the sum in its part of the bucket. The output of the all-to-all is as large as the bucket and lives until the
/// sum is stored: at the latest when all gradients are waited for, or when the bucket behind it in the buffer is
/// launched, which drains it first if it is under way (previous_grad_reduce_bucket_group of param_and_grad_buffer.py).
class Fp32Exchange {
 public:
  Fp32Exchange(Role& role, StreamId stream, GroupId group) : role_(role), stream_(stream), group_(group) {}

  /// Starts the exchange of a bucket, which holds `gradients`, on the stream.
  void Launch(const GradientBucket& bucket, const std::vector<BufferRef>& gradients);
  /// Whether this bucket is under way.
  bool IsUnderWay(const GradientBucket& bucket) const { return Find(bucket) != under_way_.size(); }
  /// Waits for a bucket that is under way, sums its parts and stores them in `gradients`.
  void Drain(const GradientBucket& bucket, const std::vector<BufferRef>& gradients);

  /// What is under way, relative to `position`; with `absolutely` by itself, for a block that launches nothing.
  std::vector<std::int64_t> Key(std::int64_t position, bool absolutely) const;
  /// Moves what is under way from blocks of the run of `position`.
  void Shift(std::int64_t position, std::int64_t blocks);

 private:
  struct Exchange {
    GradientBucket bucket;
    BufferId output;
  };

  std::size_t Find(const GradientBucket& bucket) const;
  /// A buffer of this size that no exchange under way has.
  BufferId FreeOutput(std::int64_t elements);
  BufferId SumOf(std::int64_t elements);

  Role& role_;
  StreamId stream_;
  GroupId group_;
  std::vector<Exchange> under_way_;
  std::vector<BufferId> outputs_;
  std::map<std::int64_t, BufferId> sums_;  ///< by elements
};

}  // namespace tidemark
