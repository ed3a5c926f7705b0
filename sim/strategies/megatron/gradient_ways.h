// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/strategies/megatron/gradient_buffer.h"

namespace tidemark {

/// How buckets travel among the ranks that have the same weights: those of experts, where ranks have different ones
/// (layout.ep), among fewer of them and on a stream of their own.
class GradientWays {
 public:
  struct Way {
    StreamId stream;
    GroupId group;
    std::int64_t ranks = 1;
  };

  explicit GradientWays(Role& role);

  /// Of all weights but such experts'.
  const Way& usual() const { return ways_.front(); }
  const Way& Of(const GradientBucket& bucket) const { return ways_.at(bucket.of_experts ? 1 : 0); }
  /// Starts to reduce a bucket, in place, when the compute stream has come so far. Nothing over one rank.
  void Reduce(const GradientBucket& bucket, const std::vector<BufferRef>& gradients);
  /// Starts to gather what the ranks have updated of a bucket. Nothing over one rank.
  void Gather(const GradientBucket& bucket, const std::vector<BufferRef>& weights);
  /// The streams wait for the compute stream.
  void BeginGathers();
  /// The compute stream waits for the way of a bucket, or for all.
  void Await(const GradientBucket& bucket, const char* event) { Await(Of(bucket), event); }
  void AwaitAll(const char* event);

 private:
  void Await(const Way& way, const char* event);

  Role& role_;
  std::vector<Way> ways_;
};

}  // namespace tidemark
