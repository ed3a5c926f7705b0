// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/zero3_offload.h"

#include <fmt/format.h>

#include <utility>

namespace tidemark {

Zero3Offload::Zero3Offload(Role& role, StreamId stream, const std::vector<std::int64_t>& elements)
    : role_(role), stream_(stream), accumulate_(role.job.axes.precision.accumulate) {
  partitions_ = PerBlockOnHost(role, "gradient partitions of", Category::gradient, accumulate_, elements, true);
  gradients_ = PerBlockOnHost(role, "gradients of the masters of", Category::gradient, DType::fp32, elements, true);
}

BufferRef Zero3Offload::Transient(const char* name, DType dtype, std::int64_t elements) {
  const auto [found, added] = transients_.try_emplace(fmt::format("{} of {} elements", name, elements));
  if (added) {
    found->second = role_.builder.AddBuffer({found->first, Category::bucket, dtype, elements, {1, 1}, stream_});
  }
  return {found->second, {}};
}

void Zero3Offload::Take(const Microbatch& microbatch, const BucketFlush::Part& part, const BufferRef& from,
                        GradientClip& clip) {
  const std::int64_t elements = part.elements;
  const BufferRef partition = Partition(part.position);
  const BufferRef here = Transient("partition on the device", accumulate_, elements);
  const auto to_device = [&] {
    role_.Alloc(here);
    CopyOverLink(role_, "partition to device", stream_, {partition}, {here}, elements, accumulate_);
  };
  const auto to_host = [&](std::vector<BufferRef> reads) {
    CopyOverLink(role_, "partition to host", stream_, std::move(reads), {partition}, elements, accumulate_);
  };
  if (microbatch.first()) {
    to_host(part.again ? std::vector<BufferRef>{from, partition} : std::vector<BufferRef>{from});
    to_device();
  } else {
    to_device();
    role_.MemoryKernel("add scattered gradients", stream_, Work::compute, {from, here}, {here}, elements,
                       SizeOf(accumulate_) * 3 * elements);
    to_host({here});
  }
  if (microbatch.place.last) {
    clip.MeasurePart(stream_, here, elements);
    const bool casts = accumulate_ != DType::fp32;
    const BufferRef wide = casts ? Transient("cast partition", DType::fp32, elements) : here;
    if (casts) {
      role_.Alloc(wide);
      role_.MemoryKernel("cast partition", stream_, Work::compute, {here}, {wide}, elements,
                         (SizeOf(accumulate_) + SizeOf(DType::fp32)) * elements);
    }
    CopyOverLink(role_, "gradient to host", stream_, {wide}, {Gradient(part.position)}, elements, DType::fp32);
    if (casts) {
      role_.Free(wide);
    }
  }
  role_.Free(here);
}

}  // namespace tidemark
