// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/ddp/bucket_layout.h"

namespace tidemark {

/// All-reduces (sums) of gradients in place, on a stream of their own beside the backward pass, merged by XLA's
/// combiner. Nothing where there is one rank.
class InlineReduction {
 public:
  using RefAt = std::function<BufferRef(const ParameterAt&)>;

  explicit InlineReduction(Role& role);

  void BeginForward() { in_forward_ = true; }
  void BeginBackward() { in_forward_ = false; }
  /// A gradient is complete.
  void Arrive(const ParameterAt& at, const RefAt& ref);
  /// The backward pass has ended: all-reduces what is left, and the compute stream waits for all.
  void Finish(const RefAt& ref);
  /// All gradients at once, behind whatever made them.
  void All(const RefAt& ref);

  /// As DataParallel::Key and Shift.
  std::vector<std::int64_t> Key(std::int64_t position) const;
  void Shift(std::int64_t blocks) { buckets_->Shift(blocks); }

 private:
  void Launch(const BucketMembers& bucket, const RefAt& ref);

  Role& role_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  std::unique_ptr<BucketLayout> buckets_;
  bool in_forward_ = false;
};

}  // namespace tidemark
