// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// The buffer that ZeRO stages 1 and 2 copy gradients into as they are reduced ("independent partition gradient", IPG),
/// with `sync.overlap` two of them in turn. Its size is `sync.bucket_elements`, however small the model is.
///
/// A gradient that does not fit any more sends what there is on its way first; one larger than the whole buffer is
/// reduced by itself, where it lies. Per flush: divide by N, reduce, copy this rank's part to `Target`. By
/// `sync.collective`, which stands for the config's zero_optimization.reduce_scatter:
///
///   reduce_scatter (true)   an all-reduce of a flattened copy, of which each rank copies its part back; with
///                           `sync.multi_rank_bucket` false one `reduce` per destination rank instead
///   all_reduce (false)      an all-reduce of the buffer itself, divided by N afterwards
///
/// Source: deepspeed/runtime/zero/stage_1_and_2.py at edaa7221, reduce_independent_p_g_buckets_and_remove_grads,
/// average_tensor, allreduce_bucket, reduce_ipg_grads. Which ranks own which slice of a bucket depends on the layout of
/// the flat tensor; every rank stands for the average one here, which owns 1/N of every bucket. A bucket that lies
/// within one rank's part needs no flattened copy there; it gets one here.
class ReductionBucket {
 public:
  /// `gradients`: of all that will be put in. Uses streams and group that the caller has made.
  ReductionBucket(Role& role, const ParameterTable& gradients, StreamId stream, GroupId group);

  bool open() const { return open_; }
  /// Allocates the buffers.
  void Open();
  /// Frees them. With overlap the device must be idle.
  void Close();
  /// Where this rank's part of the reduced gradients goes; allocated at the first flush from here on.
  void SetTarget(const BufferRef& target);
  /// `take` gets each reduced bucket, the elements of this rank's part of it, and whether it is the first since
  /// SetTarget. The part is not copied anywhere else.
  using Taker = std::function<void(const BufferRef& content, std::int64_t elements, bool first)>;
  void SetTaker(Taker take) { take_ = std::move(take); }
  bool started() const { return started_; }
  /// The stream on which buckets are reduced and taken.
  StreamId kernels() const { return Overlaps() ? stream_ : role_.compute; }

  bool Fits(std::int64_t elements) const { return fill_ + elements <= capacity_; }
  /// Puts a gradient in, behind a flush where it does not fit, and frees it.
  void Add(const ParameterAt& at);
  /// As Add, for a stretch of DefinitionOrder; whole blocks that fit are put in by a loop.
  void AddAll(const std::vector<ParameterAt>& members);
  /// Reduces what has been put in.
  void Flush();

  /// As in DataParallel, for a backward pass that calls Add.
  std::vector<std::int64_t> Key(std::int64_t position) const;
  std::int64_t BlocksAlike(std::int64_t position) const;
  void Shift(std::int64_t blocks);

 private:
  bool Overlaps() const;
  BufferRef buffer() const { return buffers_[index_]; }
  void Put(const ParameterAt& at);
  void ReduceWhole(const BufferRef& content, std::int64_t elements);
  void ReduceFlattened(const BufferRef& content, std::int64_t elements);
  void ReduceToOwners(const BufferRef& content, std::int64_t elements);
  void Divide(const BufferRef& content, std::int64_t elements);
  void Communicate(CollectiveKind kind, std::int64_t elements, std::vector<BufferRef> reads,
                   std::vector<BufferRef> writes);
  void TakePart(const BufferRef& content, std::int64_t elements);
  void FreeReduced();
  BufferRef Transient(const char* name, DType dtype, std::int64_t elements);
  DType wire_type() const { return role_.job.axes.precision.reduce; }
  DType type() const { return role_.job.axes.precision.params; }

  Role& role_;
  const ParameterTable& gradients_;
  StreamId stream_;
  GroupId group_;
  std::int64_t ranks_, capacity_;
  BufferRef buffers_[2], pipeline_buffer_, target_;
  Taker take_;
  std::map<std::pair<std::int64_t, DType>, BufferId> transients_;  ///< by elements and dtype
  bool open_ = false;
  bool started_ = false;  ///< the target is allocated

  // Under way:
  std::size_t index_ = 0;                     ///< buffer that is being filled
  std::int64_t fill_ = 0;                     ///< elements since the last flush
  std::int64_t flushes_ = 0;                  ///< so far
  std::optional<ParameterAt> large_;          ///< a gradient larger than the buffer, reduced by the next flush
  std::optional<ParameterAt> reduced_large_;  ///< and one that the reduction stream may still read
};

}  // namespace tidemark
