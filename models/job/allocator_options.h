// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/quantity.h"

namespace tidemark {

enum class AllocatorKind : std::uint8_t { exact, torch_caching, arena, cuda_async };

/// PyTorch's roundup_power2_divisions for sizes from `from` on: so many steps between a power of two and the next.
struct RoundupDivisions {
  Bytes from;
  std::int64_t divisions = 0;
  friend bool operator==(const RoundupDivisions&, const RoundupDivisions&) = default;
};

/// An allocator and its knobs, named as the real one names them (PYTORCH_CUDA_ALLOC_CONF for torch-caching).
struct AllocatorOptions {
  AllocatorKind kind = AllocatorKind::torch_caching;
  bool expandable_segments = false;                          ///< torch-caching
  Bytes max_split = Bytes(0);                                ///< torch-caching: max_split_size; 0: unlimited
  Bytes max_non_split_rounding = Bytes(20 << 20);            ///< torch-caching
  Bytes large_segment = Bytes(20 << 20);                     ///< torch-caching: large_segment_size
  std::vector<RoundupDivisions> roundup_power2_divisions{};  ///< torch-caching, by size; empty: 512 bytes only
  double garbage_collection_threshold = 0;                   ///< torch-caching: of the memory fraction; 0: never
  double memory_fraction = 0;                                ///< torch-caching: per_process_memory_fraction; 0: not set
  Bytes release_threshold = Bytes(0);                        ///< cuda-async: cudaMemPoolAttrReleaseThreshold
  friend bool operator==(const AllocatorOptions&, const AllocatorOptions&) = default;
};

}  // namespace tidemark
