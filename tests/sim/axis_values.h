// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/job/fields.h"
#include "models/job/job.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// The field of a job's key.
inline const Field<Job>& FieldOf(std::string_view key) {
  const std::vector<Field<Job>>& fields = JobFields();
  return *std::find_if(fields.begin(), fields.end(), [&](const Field<Job>& field) { return field.key == key; });
}

/// Sets one key as a job file would; false where it has no such value.
inline bool SetKey(Job& job, std::string_view key, const std::string& value) {
  return FieldOf(key).read(job, MakeScalar(value, "test")).ok();
}

/// Every value that tests try for a key which is no amount: the words and small numbers that it can be read from.
inline std::vector<std::string> WordsOf(std::string_view key) {
  constexpr std::array kWords = {"true",
                                 "false",
                                 "every",
                                 "last",
                                 "all_reduce",
                                 "pre",
                                 "reduce_scatter",
                                 "post",
                                 "none",
                                 "microbatches",
                                 "skip-channels",
                                 "two",
                                 "branch",
                                 "separate",
                                 "fresh",
                                 "pooled",
                                 "cached",
                                 "async",
                                 "pooled-unsafe",
                                 "global-tokens",
                                 "summed-tokens",
                                 "selective",
                                 "full",
                                 "every_n",
                                 "per_op",
                                 "0",
                                 "1",
                                 "2",
                                 "3",
                                 "16",
                                 "runtime",
                                 "program",
                                 "unrolled",
                                 "outside",
                                 "skip-channels",
                                 "two",
                                 "branch",
                                 "separate",
                                 "fused",
                                 "foreach",
                                 "for-loop"};
  std::vector<std::string> words;
  Job job;
  std::copy_if(kWords.begin(), kWords.end(), std::back_inserter(words),
               [&](const char* word) { return SetKey(job, key, word); });
  return words;
}

/// Values of the allocator's keys, of sizes that its kinds tell apart.
inline const std::vector<std::string>& AllocatorValues(std::string_view key) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> values = {
      {"allocator.kind", {"exact", "torch-caching", "arena", "cuda-async"}},
      {"allocator.expandable_segments", {"true", "false"}},
      {"allocator.max_split_size", {"20 MiB", "24 MiB", "41 MiB"}},
      {"allocator.max_non_split_rounding", {"20 MiB", "33 MiB"}},
      {"allocator.large_segment_size", {"10 MiB", "15 MiB", "40 MiB"}},
      {"allocator.roundup_power2_divisions", {"1", "4", "16", "2:8,8:1,>:2"}},
      {"allocator.garbage_collection_threshold", {"0.05", "0.8"}},
      {"allocator.memory_fraction", {"0.5", "0.97", "1"}},
      {"allocator.release_threshold", {"0", "1000", "64 MiB"}}};
  return values.find(key)->second;
}

/// A value to try for a key: an amount of a size that matters to small random networks, or one of WordsOf.
inline std::string ValueToTry(std::string_view key, Dice& dice) {
  struct Range {
    std::int64_t least, most;
  };
  static const std::map<std::string, Range, std::less<>> kAmounts = {
      {"shard.gathered_layers", {1, 3}},       {"shard.prefetch_forward", {1, 3}},
      {"shard.prefetch_backward", {0, 3}},     {"shard.reuse_distance", {0, 60000}},
      {"shard.prefetch_elements", {0, 60000}}, {"shard.persistence_threshold", {0, 3000}},
      {"shard.chunk_elements", {256, 30000}},  {"shard.max_live_elements", {0, 90000}},
      {"sync.bucket_elements", {1, 30000}},    {"shard.min_chunk_elements", {256, 30000}},
      {"sync.bucket_bytes", {64, 60000}},      {"sync.first_bucket_bytes", {64, 60000}}};
  if (const auto amount = kAmounts.find(key); amount != kAmounts.end()) {
    return std::to_string(dice.Number(amount->second.least, amount->second.most));
  }
  if (key.starts_with("allocator.")) {
    return AllocatorValues(key)[dice.Roll(AllocatorValues(key).size())];
  }
  static std::map<std::string, std::vector<std::string>, std::less<>> words;
  auto found = words.find(key);
  if (found == words.end()) {
    found = words.emplace(key, WordsOf(key)).first;
  }
  return found->second.empty() ? std::string() : found->second[dice.Roll(found->second.size())];
}

}  // namespace tidemark
