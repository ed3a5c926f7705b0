// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/deepspeed/zero3_bucket.h"
#include "sim/strategies/deepspeed/zero3_offload.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// ZeRO-3's way of a gradient, as in stage3.py and coalesced_collectives.py: copied into the bucket as it arrives; when
/// the next one does not fit, the bucket is interleaved into a buffer of its own size, divided by the ranks and
/// reduce-scattered by sum, and this rank's part is copied (first microbatch of a window) or added to its partition.
///
/// Differences in time, not in bytes: gradients are copied into the bucket on the compute stream (a program has no
/// record_stream, with which DeepSpeed frees a gradient that another stream still reads), so the copy waits until the
/// last flush has interleaved the bucket; a gradient larger than the bucket is freed when its reduce-scatter is done,
/// for which the compute stream waits. Such a gradient's scattered part has a buffer of its own here, 1/N of its size.
///
/// A scatter leaves its result in this rank's part of the very buffer that it reads. That buffer has a second name
/// then, a view of it: what is behind a reduction is another value than what went in.
class Zero3Reducer {
 public:
  Zero3Reducer(Role& role, GroupId group);

  BufferRef Gradient(const ParameterAt& at) const { return gradients_(role_, at); }
  /// One rank's sum of a block's gradients, kept from step to step.
  BufferRef Partition(std::int64_t position) const {
    return offload_ ? offload_->Partition(position) : role_.Ref(partitions_, position);
  }
  /// Where the optimizer lies in host memory: the fp32 gradient of a block's masters.
  BufferRef HostGradient(std::int64_t position) const { return offload_->Gradient(position); }
  /// What measures gradients that leave for host memory; to be set there before any arrives.
  void SetClip(GradientClip& clip) { clip_ = &clip; }
  /// Elements of it, by run; 0 where nothing is trained.
  const std::vector<std::int64_t>& partition_elements() const { return partition_elements_; }

  /// Gradients that are added up in another dtype than their own are a buffer for that.
  Category partition_category() const {
    return precision_.accumulate == precision_.gradients ? Category::gradient : Category::accumulator;
  }

  void Arrive(const Microbatch& microbatch, const ParameterAt& at);
  void Finish(const Microbatch& microbatch);

  /// What is done about the gradients of `position`, relative to it.
  void Describe(std::int64_t position, std::vector<std::int64_t>& description) const;

 private:
  /// Transients of a flush of so many elements.
  struct Transients {
    BufferId interleaved;
    BufferId scattered;  ///< the same memory once it is reduced, of which this rank's part counts
    BufferId apart;      ///< this rank's part of a gradient that is reduced where it lies, outside the bucket
    BufferId widened;
  };

  void Declare();
  void PlanArrivals();
  BufferId ScatteredIn(BufferId whole);
  const Transients& TransientsOf(std::int64_t elements);
  void Flush(const Microbatch& microbatch, const BucketFlush& flush);
  BufferRef Scatter(const BucketFlush& flush, const std::vector<BufferRef>& sources);
  BufferRef ScatterInPlace(const BucketFlush& flush, const BufferRef& source);
  void AddToPartitions(const Microbatch& microbatch, const BucketFlush& flush, const BufferRef& scattered);
  void AddToPartition(const Microbatch& microbatch, const BucketFlush::Part& part, const BufferRef& from);
  void EmitReduceScatter(std::int64_t elements, const BufferRef& from, const BufferRef& to);
  bool InPlace(const BucketFlush& flush) const;

  Role& role_;
  const Precision& precision_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  ParameterTable gradients_;
  BufferId bucket_, bucket_scattered_;  ///< the bucket; the same memory after a scatter in place
  RunBuffers partitions_;
  std::optional<Zero3Offload> offload_;
  GradientClip* clip_ = nullptr;
  std::vector<std::int64_t> partition_elements_;
  std::map<std::int64_t, Transients> transients_;
  BucketPlan plan_;
  std::vector<std::vector<std::int64_t>> arrival_;  ///< by position and parameter: index into plan_.arrivals, or -1
};

}  // namespace tidemark
