// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/text.h"
#include "models/job/validate_parts.h"

namespace tidemark {
namespace {

Error Wrong(const char* key, const std::string& message, const std::string& hint) {
  return {ErrorCode::bad_input, std::string("allocator.") + key, message, hint};
}

/// A knob that is not at its default on an allocator that has no such knob would look as if it did something.
Status CheckKind(const AllocatorOptions& options) {
  const AllocatorOptions none;
  const bool torch = options.kind == AllocatorKind::torch_caching;
  struct Knob {
    const char* key;
    bool changed, has;
    const char* of;
  };
  const Knob knobs[] = {
      {"expandable_segments", options.expandable_segments, torch, "torch-caching"},
      {"max_split_size", options.max_split != none.max_split, torch, "torch-caching"},
      {"max_non_split_rounding", options.max_non_split_rounding != none.max_non_split_rounding, torch, "torch-caching"},
      {"large_segment_size", options.large_segment != none.large_segment, torch, "torch-caching"},
      {"roundup_power2_divisions", !options.roundup_power2_divisions.empty(), torch, "torch-caching"},
      {"garbage_collection_threshold", options.garbage_collection_threshold > 0, torch, "torch-caching"},
      {"memory_fraction", options.memory_fraction > 0, torch || options.kind == AllocatorKind::arena, "torch-caching"},
      {"release_threshold", options.release_threshold > Bytes(0), options.kind == AllocatorKind::cuda_async,
       "cuda-async"},
  };
  for (const Knob& knob : knobs) {
    if (knob.changed && !knob.has) {
      return Wrong(knob.key, "the allocator of this job has no such knob",
                   fmt::format("set allocator.kind to {}, or leave this key out", knob.of));
    }
  }
  return Done{};
}

}  // namespace

Status CheckAllocator(const AllocatorOptions& options) {
  TIDEMARK_TRY(CheckKind(options));
  const std::int64_t unit = options.expandable_segments ? 2 << 20 : 1 << 20;
  if (options.large_segment.count() % unit != 0) {
    return Wrong("large_segment_size",
                 options.expandable_segments ? "a device maps pages of 2 MiB" : "PyTorch takes whole MiB",
                 fmt::format("set it to {}", Text(Bytes(RoundUp(options.large_segment.count(), unit)))));
  }
  if (options.max_split > Bytes(0) && options.max_split < options.large_segment) {
    return Wrong(
        "max_split_size",
        fmt::format("{} is less than a large segment, of {}", Text(options.max_split), Text(options.large_segment)),
        "PyTorch refuses it: set it to at least allocator.large_segment_size");
  }
  if (options.max_split > Bytes(0) && options.expandable_segments) {
    return Wrong(
        "max_split_size",
        "an expandable segment has no blocks that are kept whole: PyTorch fails an assertion where it wants to "
        "release one",
        "set it to null, or allocator.expandable_segments to false");
  }
  if (options.garbage_collection_threshold > 0 && options.memory_fraction == 0) {
    return Wrong("garbage_collection_threshold",
                 "PyTorch collects only where the process has a memory fraction, of which this is a part",
                 "set allocator.memory_fraction too (torch.cuda.set_per_process_memory_fraction), for example to 0.95");
  }
  if (options.garbage_collection_threshold > 0 && options.expandable_segments) {
    return Wrong("garbage_collection_threshold", "expandable segments are not collected",
                 "set it to null, or allocator.expandable_segments to false");
  }
  return Done{};
}

}  // namespace tidemark
