// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/deepspeed_bucket.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "sim/strategies/deepspeed/deepspeed_flat.h"

namespace tidemark {

ReductionBucket::ReductionBucket(Role& role, const ParameterTable& gradients, StreamId stream, GroupId group)
    : role_(role),
      gradients_(gradients),
      stream_(stream),
      group_(group),
      ranks_(role.job.layout.GradientRanks()),
      capacity_(role.job.axes.sync.bucket_elements) {
  const auto declare = [&](const char* name) {
    return BufferRef{role.builder.AddBuffer({name, Category::bucket, type(), capacity_, {1, 1}, role.compute}), {}};
  };
  buffers_[0] = declare("reduction bucket");
  if (Overlaps()) {
    buffers_[1] = declare("second reduction bucket");
  }
  if (role.stage.count > 1) {
    pipeline_buffer_ = declare("reduction bucket made by the pipeline");
  }
}

bool ReductionBucket::Overlaps() const { return role_.job.axes.sync.overlap; }

void ReductionBucket::Open() {
  if (open_) {
    return;
  }
  open_ = true;
  index_ = 0;
  role_.Alloc(buffers_[0]);
  if (Overlaps()) {
    role_.Alloc(buffers_[1]);
  }
}

void ReductionBucket::Close() {
  FreeReduced();
  role_.Free(buffers_[0]);
  if (Overlaps()) {
    role_.Free(buffers_[1]);
  }
  open_ = false;
}

void ReductionBucket::SetTarget(const BufferRef& target) {
  target_ = target;
  started_ = false;
}

void ReductionBucket::Add(const ParameterAt& at) {
  if (!Fits(ParameterOf(role_, at).elements)) {
    Flush();
    index_ = Overlaps() ? 1 - index_ : 0;
  }
  Put(at);
}

void ReductionBucket::AddAll(const std::vector<ParameterAt>& members) {
  // reduce_gradients(pipeline_parallel=True) appends one buffer more to the one that the hooks have made.
  if (pipeline_buffer_.buffer.valid()) {
    role_.Alloc(pipeline_buffer_);
  }
  for (std::size_t i = 0; i < members.size();) {
    Add(members[i++]);
    // The first copy differs from the later ones, which may be a loop.
    std::vector<ParameterAt> together;
    for (std::int64_t elements = 0; i < members.size() && !large_; ++i) {
      elements += ParameterOf(role_, members[i]).elements;
      if (!Fits(elements)) {
        break;
      }
      together.push_back(members[i]);
    }
    EachMember(role_, together, [&](const ParameterAt& at) {
      const std::int64_t fill = fill_;
      Put(at);
      fill_ = fill;  // a loop's body is written once
    });
    for (const ParameterAt& at : together) {
      fill_ += ParameterOf(role_, at).elements;
    }
  }
  Flush();
  if (pipeline_buffer_.buffer.valid()) {
    role_.Free(pipeline_buffer_);
  }
}

/// Copies a gradient to the end of the buffer.
void ReductionBucket::Put(const ParameterAt& at) {
  const std::int64_t elements = ParameterOf(role_, at).elements;
  if (elements > capacity_) {
    large_ = at;
  } else {
    const BufferRef gradient = gradients_(role_, at);
    std::vector<BufferRef> reads = fill_ > 0 ? std::vector{gradient, buffer()}  // keeps what is there
                                             : std::vector{gradient};
    role_.MemoryKernel("gradient to bucket", role_.compute, Work::compute, std::move(reads), {buffer()}, elements,
                       SizeOf(type()) * 2 * elements);
    role_.Free(gradient);
  }
  fill_ += elements;
}

void ReductionBucket::Flush() {
  if (fill_ == 0) {
    return;
  }
  if (Overlaps()) {
    // One bucket is under way at most: the compute stream, too, waits for the previous one.
    role_.builder.Order(stream_, role_.compute, "bucket filled");
    role_.builder.Order(role_.compute, stream_, "previous bucket reduced");
  }
  FreeReduced();
  const BufferRef content = large_ ? gradients_(role_, *large_) : buffer();
  const Sync& sync = role_.job.axes.sync;
  if (sync.collective == CollectiveKind::all_reduce) {
    ReduceWhole(content, fill_);
  } else if (sync.multi_rank_bucket) {
    ReduceFlattened(content, fill_);
  } else {
    ReduceToOwners(content, fill_);
  }
  TakePart(content, fill_);
  fill_ = 0;
  ++flushes_;
  reduced_large_ = std::exchange(large_, std::nullopt);
  if (!Overlaps()) {
    FreeReduced();
  }
}

/// gradient_reduction_w_predivide with its defaults: sum, then times 1/N.
void ReductionBucket::ReduceWhole(const BufferRef& content, std::int64_t elements) {
  const bool casts = wire_type() != type();
  const BufferRef wire = casts ? Transient("cast bucket", wire_type(), elements) : content;
  const Bytes cast_bytes = (SizeOf(type()) + SizeOf(wire_type())) * elements;
  if (casts) {
    role_.Alloc(wire);
    role_.MemoryKernel("cast bucket", kernels(), Work::compute, {content}, {wire}, elements, cast_bytes);
  }
  Communicate(CollectiveKind::all_reduce, elements, {wire}, {wire});
  if (ranks_ > 1) {
    Divide(wire, elements);
  }
  if (casts) {
    role_.MemoryKernel("bucket from cast", kernels(), Work::compute, {wire}, {content}, elements, cast_bytes);
    role_.Free(wire);
  }
}

/// allreduce_and_scatter: no reduce-scatter, despite its name.
void ReductionBucket::ReduceFlattened(const BufferRef& content, std::int64_t elements) {
  Divide(content, elements);
  if (ranks_ == 1) {
    return;
  }
  const BufferRef flat = Transient("flattened bucket", type(), elements);
  role_.Alloc(flat);
  role_.MemoryKernel("flatten bucket", kernels(), Work::compute, {content}, {flat}, elements,
                     SizeOf(type()) * 2 * elements);
  const bool casts = wire_type() != type();
  const BufferRef wire = casts ? Transient("cast bucket", wire_type(), elements) : flat;
  const Bytes cast_bytes = (SizeOf(type()) + SizeOf(wire_type())) * elements;
  if (casts) {
    role_.Alloc(wire);
    role_.MemoryKernel("cast bucket", kernels(), Work::compute, {flat}, {wire}, elements, cast_bytes);
  }
  Communicate(CollectiveKind::all_reduce, elements, {wire}, {wire});
  if (casts) {
    role_.MemoryKernel("bucket from cast", kernels(), Work::compute, {wire}, {flat}, elements, cast_bytes);
    role_.Free(wire);
  }
  const std::int64_t part = CeilDiv(elements, ranks_);
  role_.MemoryKernel("own slices from flattened bucket", kernels(), Work::compute, {flat}, {content}, part,
                     SizeOf(type()) * 2 * part);
  role_.Free(flat);
}

/// allreduce_no_retain with a destination: slices are reduced where they lie. The last of them is this rank's own; the
/// others leave nothing here that anybody reads.
void ReductionBucket::ReduceToOwners(const BufferRef& content, std::int64_t elements) {
  Divide(content, elements);
  const bool casts = wire_type() != type() && ranks_ > 1;
  for (std::int64_t i = 0; i < ranks_; ++i) {
    const std::int64_t slice = elements * (i + 1) / ranks_ - elements * i / ranks_;
    if (Overlaps()) {
      role_.builder.Emit(HostSync{});  // allreduce_and_copy synchronises the device
    }
    if (slice == 0 || ranks_ == 1) {
      continue;
    }
    const BufferRef wire = casts ? Transient("cast slice", wire_type(), slice) : content;
    const Bytes cast_bytes = (SizeOf(type()) + SizeOf(wire_type())) * slice;
    if (casts) {
      role_.Alloc(wire);
      role_.MemoryKernel("cast slice", kernels(), Work::compute, {content}, {wire}, slice, cast_bytes);
    }
    const bool own = i == ranks_ - 1;
    Communicate(CollectiveKind::reduce, slice, {wire}, own ? std::vector<BufferRef>{wire} : std::vector<BufferRef>{});
    if (casts) {
      if (own) {
        role_.MemoryKernel("slice from cast", kernels(), Work::compute, {wire}, {content}, slice, cast_bytes);
      }
      role_.Free(wire);
    }
  }
}

void ReductionBucket::Divide(const BufferRef& content, std::int64_t elements) {
  const DType dtype = role_.builder.buffer(content.buffer).dtype;
  role_.MemoryKernel("divide by ranks", kernels(), Work::compute, {content}, {content}, elements,
                     SizeOf(dtype) * 2 * elements, Rational(1, ranks_));
}

void ReductionBucket::Communicate(CollectiveKind kind, std::int64_t elements, std::vector<BufferRef> reads,
                                  std::vector<BufferRef> writes) {
  if (ranks_ == 1) {
    return;
  }
  if (!Overlaps()) {
    role_.builder.Order(stream_, role_.compute, "bucket ready");
  }
  role_.builder.Emit(Collective{role_.builder.Named("reduce bucket"), kind, Reduction::sum, Rational(1), group_,
                                wire_type(), elements, stream_, std::move(reads), std::move(writes)});
  if (!Overlaps()) {
    role_.builder.Order(role_.compute, stream_, "bucket reduced");
  }
}

/// copy_grads_in_partition: the buffer will be written again.
void ReductionBucket::TakePart(const BufferRef& content, std::int64_t elements) {
  const std::int64_t part = CeilDiv(elements, ranks_);
  const bool first = !std::exchange(started_, true);
  if (take_) {
    return take_(content, part, first);
  }
  std::vector<BufferRef> reads{content};
  if (first) {
    role_.Alloc(target_);
  } else {
    reads.push_back(target_);
  }
  role_.MemoryKernel("own part of bucket", kernels(), Work::compute, std::move(reads), {target_}, part,
                     SizeOf(type()) * 2 * part);
}

void ReductionBucket::FreeReduced() {
  if (reduced_large_) {
    role_.Free(gradients_(role_, *reduced_large_));
    reduced_large_.reset();
  }
}

BufferRef ReductionBucket::Transient(const char* name, DType dtype, std::int64_t elements) {
  BufferId& id = transients_[{elements, dtype}];
  if (!id.valid()) {
    id = role_.builder.AddBuffer(
        {fmt::format("{}, {} elements", name, elements), Category::bucket, dtype, elements, {1, 1}, kernels()});
  }
  return {id, {}};
}

std::vector<std::int64_t> ReductionBucket::Key(std::int64_t position) const {
  // Where the next block fits, how full the bucket is decides only for how many blocks the key promises anything; a
  // match across a flush would promise too much. Elsewhere the flush comes back when the same fill does.
  const bool fits = Fits(TrainableElements(role_.stage.BlockAt(position)));
  const auto at = [&](const std::optional<ParameterAt>& parameter) {
    return role_.KeyOf(parameter ? std::optional(parameter->position) : std::nullopt, position);
  };
  return {open_ ? 1 : 0,
          started_ ? 1 : 0,
          static_cast<std::int64_t>(index_),
          fits ? -1 : fill_,
          fits ? flushes_ : -1,
          fill_ == 0 ? 1 : 0,
          at(large_),
          large_ ? std::int64_t{large_->parameter} : -1,
          at(reduced_large_),
          reduced_large_ ? std::int64_t{reduced_large_->parameter} : -1};
}

std::int64_t ReductionBucket::BlocksAlike(std::int64_t position) const {
  const std::int64_t elements = TrainableElements(role_.stage.BlockAt(position));
  return elements == 0 || !Fits(elements) ? INT64_MAX : (capacity_ - fill_) / elements;
}

/// Called where the blocks up to `current` are written: those that are skipped fit, or leave the bucket as it is.
void ReductionBucket::Shift(std::int64_t blocks) {
  const std::size_t run = role_.stage.RunOf(role_.current());
  const std::int64_t elements = TrainableElements(role_.stage.runs[run].block());
  if (Fits(elements)) {
    fill_ += elements * std::abs(blocks);
  }
  for (std::optional<ParameterAt>* remembered : {&large_, &reduced_large_}) {
    if (*remembered && role_.stage.RunOf((*remembered)->position) == run) {
      (*remembered)->position += blocks;
    }
  }
}

}  // namespace tidemark
