// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/colossalai/chunk_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <variant>

#include "base/quantity.h"

namespace tidemark {
namespace {

/// Sizes of all parameters of a stage in order of definition; a tied one is stored once.
std::vector<std::int64_t> SizesOf(const Stage& stage) {
  std::vector<std::int64_t> sizes;
  for (const StageRun& run : stage.runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      for (const Parameter& parameter : run.block().parameters) {
        if (!parameter.tied) {
          sizes.push_back(parameter.elements);
        }
      }
    }
  }
  return sizes;
}

std::int64_t Sum(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

/// Chunks of `capacity` that `sizes` need, or more than `limit`.
std::int64_t ChunksNeeded(std::span<const std::int64_t> sizes, std::int64_t capacity, std::int64_t limit) {
  std::int64_t chunks = 0, left = 0;
  for (const std::int64_t size : sizes) {
    if (size > left) {
      left = capacity;
      if (++chunks > limit) {
        return chunks;
      }
    }
    left -= size;
  }
  return chunks;
}

/// The plugin's `hidden_dim`; without one it takes 1024.
std::int64_t IntervalOf(const Job& job) {
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  return decoder != nullptr ? decoder->hidden : 1024;
}

/// Appends parameters to the last chunk, as long as they fit.
class ChunkPacker {
 public:
  ChunkPacker(ChunkLayout& layout, std::int64_t ranks) : layout_(layout), ranks_(ranks) {}

  std::int32_t Append(std::int64_t size) {
    if (layout_.elements.empty() || layout_.used.back() + size > layout_.elements.back()) {
      layout_.elements.push_back(size > layout_.chunk_elements ? RoundUp(size, ranks_) : layout_.chunk_elements);
      layout_.used.push_back(0);
      layout_.parameters.push_back(0);
    }
    layout_.used.back() += size;
    ++layout_.parameters.back();
    return static_cast<std::int32_t>(layout_.elements.size()) - 1;
  }

 private:
  ChunkLayout& layout_;
  std::int64_t ranks_;
};

/// A block that lies in one chunk as a whole, and then those behind it; else parameter by parameter.
void AddMembers(const Block& block, std::int64_t index, const std::vector<std::int32_t>& chunks,
                std::vector<std::vector<HeldRun>>& members) {
  std::set<std::int32_t> used(chunks.begin(), chunks.end());
  used.erase(-1);
  if (used.size() == 1) {
    std::vector<HeldRun>& of = members[static_cast<std::size_t>(*used.begin())];
    if (!of.empty() && of.back().name == block.name && of.back().first + of.back().count == index) {
      ++of.back().count;
    } else {
      of.push_back({block.name, index});
    }
    return;
  }
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i] >= 0) {
      members[static_cast<std::size_t>(chunks[i])].push_back({block.name + "." + block.parameters[i].name, index});
    }
  }
}

}  // namespace

std::vector<std::int64_t> WithoutOutliers(std::span<const std::int64_t> sizes) {
  const auto count = static_cast<double>(sizes.size());
  const double mean = static_cast<double>(Sum(sizes)) / count;
  double variance = 0;
  for (const std::int64_t size : sizes) {
    const double distance = static_cast<double>(size) - mean;
    variance += distance * distance / count;
  }
  const double limit = mean + 3 * std::sqrt(variance);
  std::vector<std::int64_t> kept;
  std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(kept),
               [&](std::int64_t size) { return static_cast<double>(size) <= limit; });
  return kept;
}

ChunkSize SearchChunkSize(std::span<const std::int64_t> sizes, const ChunkSearch& search) {
  const std::int64_t sum = Sum(sizes);
  const std::int64_t largest = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  const std::int64_t start = RoundUp(std::max(search.minimum, largest), search.interval);
  ChunkSize best{start, std::numeric_limits<std::int64_t>::max()};
  for (std::int64_t candidate = start; candidate <= start + search.range;) {
    const std::int64_t fewest = CeilDiv(sum, candidate);
    if (fewest * candidate - sum >= best.waste) {
      if (fewest <= 1) {
        break;
      }
      // The first candidate for which one chunk less might do.
      const std::int64_t next = CeilDiv(sum, fewest - 1);
      candidate = start + std::max(CeilDiv(next - start, search.interval), (candidate - start) / search.interval + 1) *
                              search.interval;
      continue;
    }
    const bool first = best.waste == std::numeric_limits<std::int64_t>::max();
    const std::int64_t limit = first ? best.waste : (best.waste + sum) / candidate;
    const std::int64_t waste = ChunksNeeded(sizes, candidate, limit) * candidate - sum;
    if (waste < best.waste) {
      best = {candidate, waste};
    }
    candidate += search.interval;
  }
  return best;
}

bool KeepsGathered(const Stage& stage, const Shard& shard) {
  return shard.chunk_elements == 0 && Sum(SizesOf(stage)) < shard.min_chunk_elements;
}

ChunkLayout PackChunks(const Stage& stage, const Job& job) {
  const Shard& shard = job.axes.shard;
  const std::vector<std::int64_t> sizes = SizesOf(stage);
  ChunkLayout layout;
  layout.keep_gathered = KeepsGathered(stage, shard);
  if (layout.keep_gathered) {
    layout.chunk_elements = Sum(sizes);
  } else if (shard.chunk_elements > 0) {
    layout.chunk_elements = shard.chunk_elements;
  } else {
    const ChunkSearch search{shard.min_chunk_elements, ChunkSearch{}.range, IntervalOf(job)};
    layout.chunk_elements =
        RoundUp(SearchChunkSize(WithoutOutliers(sizes), search).elements, job.layout.GradientRanks());
  }
  ChunkPacker packer(layout, job.layout.GradientRanks());
  for (const StageRun& run : stage.runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      std::vector<std::int32_t>& chunks = layout.chunk.emplace_back();
      for (const Parameter& parameter : run.block().parameters) {
        chunks.push_back(parameter.trainable && !parameter.tied ? packer.Append(parameter.elements) : -1);
      }
      layout.members.resize(layout.elements.size());
      AddMembers(run.block(), i, chunks, layout.members);
    }
  }
  return layout;
}

}  // namespace tidemark
