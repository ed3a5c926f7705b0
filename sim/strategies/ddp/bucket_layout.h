// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// Gradients that are reduced together.
using BucketMembers = std::vector<ParameterAt>;

/// Which gradients share a bucket, and when each bucket may leave. PyTorch DDP has three such layouts over a run
/// (torch/csrc/distributed/c10d/reducer.cpp): one bucket of everything, buckets in the order in which gradients arrive,
/// and buckets in the order in which parameters were defined.
class BucketLayout {
 public:
  virtual ~BucketLayout() = default;

  /// This gradient is complete. Returns the buckets that are launched now, first one first.
  virtual std::vector<BucketMembers> Arrive(const ParameterAt& at) = 0;
  /// The backward pass has ended. Returns the buckets that are still to be launched, and begins anew.
  virtual std::vector<BucketMembers> Finish() = 0;
  /// As DataParallel::Key and Shift, for a backward pass that synchronises.
  virtual std::vector<std::int64_t> Key(std::int64_t position) const = 0;
  virtual void Shift(std::int64_t blocks) = 0;
};

/// One bucket of all gradients, launched at the end of the backward pass.
std::unique_ptr<BucketLayout> OneBucket(const Role& role);

/// Gradients join the bucket in the order in which they arrive; a bucket closes when it has reached its limit: the
/// window's first `sync.first_bucket_bytes`, the others `sync.bucket_bytes`.
std::unique_ptr<BucketLayout> BucketsByArrival(const Role& role);

/// Filled in definition order, the smaller limit first, and launched last bucket first, strictly in that order: a
/// bucket that is complete waits for those before it. Where the pattern of launches does not repeat over a run of equal
/// blocks, the run's backward pass is written out.
std::unique_ptr<BucketLayout> BucketsByDefinition(const Role& role);

}  // namespace tidemark
