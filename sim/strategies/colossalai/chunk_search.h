// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/job/job.h"
#include "sim/lower/stage.h"
#include "sim/program/holding.h"

namespace tidemark {

/// What Colossal-AI's chunk search begins with. Elements.
struct ChunkSearch {
  std::int64_t minimum = std::int64_t{32} << 20;  ///< min_chunk_size_m
  std::int64_t range = std::int64_t{32} << 20;    ///< search_range_m: candidates reach so far beyond the first
  std::int64_t interval = 1024;                   ///< hidden_dim: between two candidates
};

/// A chunk size, and how much of it the search believes to be wasted.
struct ChunkSize {
  std::int64_t elements = 0, waste = 0;
  friend bool operator==(const ChunkSize&, const ChunkSize&) = default;
};

/// Parameters larger than the mean by more than three standard deviations are left out of the search.
std::vector<std::int64_t> WithoutOutliers(std::span<const std::int64_t> sizes);

/// The candidate that packs `sizes`, in this order, with the least waste; of equal ones the smallest. Candidates are
/// ceil(max(minimum, largest size) / interval) * interval and then every `interval` up to `range` beyond it.
///
/// k chunks of C waste k C - sum, and no packing needs fewer than ceil(sum / C) chunks. A candidate whose lower bound
/// is no better than the best so far is passed over in constant time, and so are all larger ones that need as many
/// chunks. Cost: one packing, which gives up as soon as it is beaten, for each candidate that remains: microseconds for
/// a model of a few chunks, under a millisecond for hundreds of chunks and a thousand parameters.
ChunkSize SearchChunkSize(std::span<const std::int64_t> sizes, const ChunkSearch& search);

/// Where the parameters of a stage lie.
struct ChunkLayout {
  bool keep_gathered = false;                    ///< one small chunk, whole on every rank
  std::int64_t chunk_elements = 0;               ///< of a chunk whose first parameter fits
  std::vector<std::int64_t> elements;            ///< by chunk, padding included; divisible by the ranks if sharded
  std::vector<std::int64_t> used, parameters;    ///< by chunk: elements that are parameters, and how many
  std::vector<std::vector<HeldRun>> members;     ///< by chunk, in its order
  std::vector<std::vector<std::int32_t>> chunk;  ///< by position and parameter of its block; -1: not in a chunk

  std::int64_t ChunkOf(const ParameterAt& at) const {
    return chunk[static_cast<std::size_t>(at.position)][at.parameter];
  }
};

/// Whether all parameters together are smaller than the smallest chunk: then they form one chunk that stays gathered.
bool KeepsGathered(const Stage& stage, const Shard& shard);

/// colossalai/zero/gemini/chunk/search_utils.py and manager.py: finds the chunk size over all parameters in order of
/// definition (or takes `shard.chunk_elements`), then appends parameter by parameter, outliers and all. One that does
/// not fit opens the next chunk; one larger than a chunk gets a chunk of its own size, padded to `ranks`. Frozen
/// parameters count in the search, which happens before they are told apart, but lie in no chunk.
ChunkLayout PackChunks(const Stage& stage, const Job& job);

}  // namespace tidemark
