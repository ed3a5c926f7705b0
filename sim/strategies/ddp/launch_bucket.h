// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// What becomes of a bucket of gradients.
struct BucketReduction {
  std::string_view name = "reduce bucket";
  CollectiveKind kind = CollectiveKind::all_reduce;
  Reduction reduction = Reduction::sum;
  DType dtype = DType::bf16;
};

/// Reduces a bucket on `stream`, in place, when the compute stream has come so far.
inline void StartBucket(Role& role, StreamId stream, GroupId group, const BucketReduction& what, std::int64_t elements,
                        const std::vector<BufferRef>& buffers) {
  role.builder.Order(stream, role.compute, "bucket ready");
  role.builder.Emit(Collective{role.builder.Named(what.name), what.kind, what.reduction, Rational(1), group, what.dtype,
                               elements, stream, buffers, buffers});
}

/// Launches a bucket of `elements` on DistributedDataParallel's stream when the compute stream has come so far; with
/// `sync.overlap` off, that waits for it. Nothing over one rank, or where there are no elements.
inline void LaunchBucket(Role& role, StreamId stream, GroupId group, const BucketReduction& what, std::int64_t elements,
                         const std::vector<BufferRef>& buffers) {
  if (elements == 0 || role.job.layout.GradientRanks() == 1) {
    return;
  }
  StartBucket(role, stream, group, what, elements, buffers);
  if (!role.job.axes.sync.overlap) {
    role.builder.Order(role.compute, stream, "bucket reduced");
  }
}

}  // namespace tidemark
