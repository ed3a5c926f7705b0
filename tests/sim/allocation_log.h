// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "models/job/allocator_options.h"
#include "sim/memory/capacity.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// Every kind of allocator, with knobs that change where its memory comes from; by name.
inline const std::vector<std::pair<std::string, AllocatorOptions>>& EveryAllocator() {
  using enum AllocatorKind;
  constexpr Bytes kMiB = Bytes(1 << 20);
  static const std::vector<std::pair<std::string, AllocatorOptions>> all = {
      {"exact", {.kind = exact}},
      {"torch", {}},
      {"torch_expandable", {.expandable_segments = true}},
      {"torch_max_split", {.max_split = 22 * kMiB}},
      {"torch_roundup", {.roundup_power2_divisions = {{Bytes(0), 4}}}},
      {"torch_large_segment", {.large_segment = 30 * kMiB}},
      {"torch_fraction", {.memory_fraction = 0.7}},
      {"torch_collects", {.garbage_collection_threshold = 0.6, .memory_fraction = 0.9}},
      {"torch_expandable_fraction", {.expandable_segments = true, .memory_fraction = 0.8}},
      {"arena", {.kind = arena}},
      {"arena_fraction", {.kind = arena, .memory_fraction = 0.75}},
      {"cuda_async", {.kind = cuda_async}},
      {"cuda_async_threshold", {.kind = cuda_async, .release_threshold = 64 * kMiB}},
  };
  return all;
}

/// A small log with pressure: few sizes, many frees, two streams, and now and then a wait for all of them.
inline std::vector<Request> RandomLog(std::uint64_t seed, int requests = 40) {
  constexpr std::int64_t kMiB = 1 << 20;
  constexpr std::int64_t kSizes[] = {512, kMiB, 2 * kMiB, 5 * kMiB, 9 * kMiB, 12 * kMiB, 21 * kMiB, 33 * kMiB};
  Dice dice(seed);
  std::vector<Request> log;
  std::vector<std::uint32_t> live, spare;
  std::uint32_t ids = 0;
  for (int i = 0; i < requests; ++i) {
    const bool after_sync = dice.OneIn(12);
    if (!live.empty() && dice.Roll(100) < 45) {
      std::swap(live[dice.Roll(live.size())], live.back());
      log.push_back({false, live.back(), Bytes(0), 0, after_sync});
      spare.push_back(live.back());
      live.pop_back();
      continue;
    }
    if (spare.empty()) {
      spare.push_back(ids++);
    }
    live.push_back(spare.back());
    spare.pop_back();
    const Bytes bytes = Bytes(kSizes[dice.Roll(std::size(kSizes))] + dice.Number(0, 1));
    log.push_back({true, live.back(), bytes, dice.Roll(2), after_sync});
  }
  return log;
}

}  // namespace tidemark
