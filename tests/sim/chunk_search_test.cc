// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/colossalai/chunk_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/sim/dice.h"
#include "tests/sim/oracle_job.h"

// Worked numbers: the search of colossalai/zero/gemini/chunk/search_utils.py at 4f9953be, done by an independent script
// for the model of the worked numbers.

namespace tidemark::chunk_search_test {
namespace {

constexpr std::int64_t kMi = std::int64_t{1} << 20;

Stage OnlyStage(const Job& job) {
  const Result<std::vector<Stage>> stages = CutIntoStages(job);
  EXPECT_TRUE(stages.ok());
  return stages->front();
}

/// Embedding, four layers (norm, wq, wk, wv, wo, norm, packed gate-up, down), norm, head.
std::vector<std::int64_t> OracleSizes() {
  std::vector<std::int64_t> sizes{32'768'000};
  for (int layer = 0; layer < 4; ++layer) {
    for (const std::int64_t size : {1024, 1'048'576, 262'144, 262'144, 1'048'576, 1024, 5'767'168, 2'883'584}) {
      sizes.push_back(size);
    }
  }
  sizes.insert(sizes.end(), {1024, 32'768'000});
  return sizes;
}

/// The definition: every candidate, packed first-come.
ChunkSize SearchAll(const std::vector<std::int64_t>& sizes, const ChunkSearch& search) {
  const std::int64_t largest = std::max(search.minimum, *std::max_element(sizes.begin(), sizes.end()));
  const std::int64_t start = (largest + search.interval - 1) / search.interval * search.interval;
  ChunkSize best{start, INT64_MAX};
  for (std::int64_t candidate = start; candidate <= start + search.range; candidate += search.interval) {
    std::int64_t wasted = 0, left = 0;
    for (const std::int64_t size : sizes) {
      if (size > left) {
        wasted += left;
        left = candidate;
      }
      left -= size;
    }
    if (wasted + left < best.waste) {
      best = {candidate, wasted + left};
    }
  }
  return best;
}

TEST(ChunkSearch, LeavesOutWhatIsMuchLargerThanTheRest) {
  const std::vector<std::int64_t> kept = WithoutOutliers(OracleSizes());
  EXPECT_EQ(kept.size(), OracleSizes().size() - 2);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 32'768'000), 0);
  EXPECT_EQ(WithoutOutliers(std::vector<std::int64_t>{7, 7, 7}).size(), 3U);
}

TEST(ChunkSearch, FindsTheChunkThatWastesNothing) {
  const ChunkSize found = SearchChunkSize(WithoutOutliers(OracleSizes()), {32 * kMi, 32 * kMi, 1024});
  EXPECT_EQ(found, (ChunkSize{45'097'984, 0}));
}

TEST(ChunkSearch, BeginsAtTheLargestParameterRoundedUpToTheInterval) {
  EXPECT_EQ(SearchChunkSize(std::vector<std::int64_t>{5000, 5000}, {1000, 0, 1024}).elements, 5120);
  EXPECT_EQ(SearchChunkSize(std::vector<std::int64_t>{5000, 5000}, {6000, 0, 1024}).elements, 6144);
}

TEST(ChunkSearch, PassingCandidatesOverFindsWhatTryingThemAllFinds) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Dice dice(seed);
    std::vector<std::int64_t> layer, sizes;
    for (std::int64_t i = dice.Number(1, 9); i > 0; --i) {
      layer.push_back(dice.Number(1, 3000));
    }
    for (std::int64_t i = dice.Number(1, 12); i > 0; --i) {
      sizes.insert(sizes.end(), layer.begin(), layer.end());
    }
    const ChunkSearch search{dice.Number(1, 5000), dice.Number(0, 9000), dice.Number(1, 64)};
    ASSERT_EQ(SearchChunkSize(sizes, search), SearchAll(sizes, search)) << seed;
  }
}

TEST(ChunkLayout, OutliersArePackedAllTheSame) {
  const Job job = OracleJob("colossalai-gemini", 4);
  const ChunkLayout layout = PackChunks(OnlyStage(job), job);
  EXPECT_FALSE(layout.keep_gathered);
  EXPECT_EQ(layout.elements, (std::vector<std::int64_t>(3, 45'097'984)));
  // 135,293,952 elements for 110,633,984 parameters: 22.3 % more than there are, which the search calls 0.
  const auto sum = [](const std::vector<std::int64_t>& of) { return std::accumulate(of.begin(), of.end(), 0.0); };
  EXPECT_EQ(sum(layout.used), 110'633'984);
  EXPECT_NEAR(sum(layout.elements) / sum(layout.used), 1.223, 0.0005);
  // The embedding, layer 0, and of layer 1 its first norm and wq; then all up to the final norm; then the head.
  EXPECT_EQ(layout.used, (std::vector<std::int64_t>{45'091'840, 32'774'144, 32'768'000}));
  EXPECT_EQ(layout.parameters, (std::vector<std::int64_t>{11, 23, 1}));
}

// Three layers of ffn 2048 have 26,744,832 elements, which with the final norm fit the smallest chunk; every larger one
// wastes more. Embedding and head, 32,768,000 each, are left out of the search, but count when it is decided whether
// everything fits one chunk: 92,281,856 elements do not.
TEST(ChunkLayout, TheSearchOfAJobBeginsAtThirtyTwoMiElements) {
  Job job = OracleJob("colossalai-gemini", 4);
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 3;
  decoder.ffn = 2048;
  EXPECT_EQ(PackChunks(OnlyStage(job), job).chunk_elements, 33'554'432);
}

TEST(ChunkLayout, ChunksArePaddedToTheRanks) {
  Job job = OracleJob("colossalai-gemini", 4);
  job.layout.dp = 3;
  EXPECT_EQ(PackChunks(OnlyStage(job), job).elements, (std::vector<std::int64_t>(3, 45'097'986)));
}

TEST(ChunkLayout, AParameterLargerThanAChunkGetsItsOwnSize) {
  Job job = OracleJob("colossalai-gemini", 4);
  job.layout.dp = 3;
  job.axes.shard.chunk_elements = 11'274'240;
  const ChunkLayout layout = PackChunks(OnlyStage(job), job);
  // 32,768,000 padded to a multiple of 3; layers fill a chunk each; the final norm has one to itself.
  EXPECT_EQ(layout.elements, (std::vector<std::int64_t>{32'768'001, 11'274'240, 11'274'240, 11'274'240, 11'274'240,
                                                        11'274'240, 32'768'001}));
  EXPECT_EQ(layout.used[5], 1024);
}

TEST(ChunkLayout, FewParametersFormOneChunkThatStaysGathered) {
  Job job = OracleJob("colossalai-gemini", 4);
  job.axes.shard.min_chunk_elements = 110'633'985;
  const ChunkLayout layout = PackChunks(OnlyStage(job), job);
  EXPECT_TRUE(layout.keep_gathered);
  EXPECT_EQ(layout.elements, (std::vector<std::int64_t>{110'633'984}));
  job.axes.shard.min_chunk_elements = 110'633'984;
  EXPECT_FALSE(PackChunks(OnlyStage(job), job).keep_gathered);
}

TEST(ChunkLayout, FrozenParametersLieInNoChunk) {
  Job job = OracleJob("colossalai-gemini", 4);
  job.network.trainable = {"layer.*"};
  const ChunkLayout layout = PackChunks(OnlyStage(job), job);
  EXPECT_EQ(layout.used, (std::vector<std::int64_t>{45'096'960}));
  EXPECT_EQ(layout.ChunkOf({0, 0}), -1);
}

}  // namespace
}  // namespace tidemark::chunk_search_test
