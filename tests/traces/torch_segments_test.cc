// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_segments.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tidemark::torch_segments_test {
namespace {

using Change = TorchSegmentChange;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::uint64_t kSpare = std::uint64_t{1} << 45U;
constexpr std::int64_t kBetween = 8 * 512;  // what must stay between segments that touch, of which there are few

std::string Shown(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes) {
    const char* kind = change.kind == Change::Kind::alloc  ? "alloc"
                       : change.kind == Change::Kind::free ? "free"
                       : change.kind == Change::Kind::map  ? "map"
                                                           : "unmap";
    text += (text.empty() ? "" : ", ") + std::string(kind) + " " + std::to_string(change.address) + "+" +
            std::to_string(change.n_bytes);
  }
  return text;
}

TEST(TorchSegments, ofACachingAllocatorAreFoundAgain) {
  TorchSegments segments(kSpare, false);
  std::vector<Change> changes;
  // 3 MiB from a fresh segment of 20 MiB, twice 1,000 bytes (two blocks of 1,024) from one of 2 MiB.
  EXPECT_TRUE(segments.Alloc(40 * kMiB, 3 * kMiB, 0, 20 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(10 * kMiB, 1024, 0, 22 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(10 * kMiB + 1024, 1024, 0, 22 * kMiB, changes));
  EXPECT_EQ(Shown(changes), "alloc 41943040+20971520, alloc 10485760+2097152");
  changes.clear();
  // Both small blocks are freed; then the cache is flushed for 24 MiB: 2 MiB go, 24 come.
  segments.Free(10 * kMiB);
  segments.Free(10 * kMiB + 1024);
  segments.MakeRoom(100 * kMiB, 24 * kMiB, 44 * kMiB, changes);
  EXPECT_TRUE(segments.Alloc(100 * kMiB, 24 * kMiB, 0, 44 * kMiB, changes));
  EXPECT_EQ(Shown(changes), "free 10485760+2097152, alloc 104857600+25165824");
  EXPECT_EQ(segments.reserved(), 44 * kMiB);
}

TEST(TorchSegments, ofAnAllocatorWithoutACacheAreItsBlocks) {
  TorchSegments segments(kSpare, false);
  std::vector<Change> changes;
  EXPECT_TRUE(segments.Alloc(4096, 700, 0, 700, changes));
  segments.Free(4096);
  segments.Reserve(0, changes);
  EXPECT_EQ(Shown(changes), "alloc 4096+700, free 4096+700");
}

TEST(TorchSegments, growWhereABlockReachesBeyondOne) {
  TorchSegments segments(kSpare, false);
  std::vector<Change> changes;
  EXPECT_TRUE(segments.Alloc(20 * kMiB, 15 * kMiB, 0, 20 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(35 * kMiB, 10 * kMiB, 0, 30 * kMiB, changes));
  EXPECT_EQ(Shown(changes), "alloc 20971520+20971520, map 41943040+10485760") << "5 MiB for it, 5 MiB behind it";
}

TEST(TorchSegments, ofAnArenaThatGrowsByPagesHaveItsTotalHoweverFullItIs) {
  TorchSegments segments(kSpare, false);
  std::vector<Change> changes;
  constexpr std::int64_t kBlock = 3 * kMiB / 8;  // 16 of them fill three pages of 2 MiB; the sixth lies in two
  for (std::int64_t i = 0; i < 16; ++i) {
    const std::int64_t pages = ((i + 1) * kBlock + 2 * kMiB - 1) / (2 * kMiB);
    ASSERT_TRUE(
        segments.Alloc(static_cast<std::uint64_t>(64 * kMiB + i * kBlock), kBlock, 0, pages * 2 * kMiB, changes));
    ASSERT_EQ(segments.reserved(), pages * 2 * kMiB) << i;
  }
  EXPECT_EQ(Shown(changes), "alloc 67108864+2097152, map 69206016+2097152, map 71303168+2097152");
}

TEST(TorchSegments, ofAnArenaAreOneWhateverStreamsItsBlocksAreOf) {
  TorchSegments segments(kSpare, false);
  std::vector<Change> changes;
  EXPECT_TRUE(segments.Alloc(20 * kMiB, 15 * kMiB, 0, 20 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(35 * kMiB, 10 * kMiB, 1, 30 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(49 * kMiB, 2 * kMiB, 2, 32 * kMiB, changes));
  EXPECT_EQ(Shown(changes), "alloc 20971520+20971520, map 41943040+10485760, map 52428800+2097152");
  for (const Change& change : changes) {
    EXPECT_EQ(change.stream, 0);
  }
}

// A page of 2 MiB is full to the last byte when the next one is mapped; then a block lies in both.
TEST(TorchSegments, ofAJoinedRangeAreOneWhereverABlockBegins) {
  for (const bool joined : {true, false}) {
    TorchSegments segments(kSpare, joined);
    std::vector<Change> changes;
    for (std::uint64_t i = 0; i < 8; ++i) {
      EXPECT_TRUE(segments.Alloc(40 * kMiB + i * kMiB / 2, kMiB / 2, i % 2, i < 4 ? 2 * kMiB : 4 * kMiB, changes));
    }
    EXPECT_EQ(Shown(changes), joined ? "alloc 41943040+2097152, map 44040192+2097152"
                                     : "alloc 41943040+2097152, alloc 44040192+2097152");
    segments.Free(41 * kMiB + kMiB / 2);
    segments.Free(42 * kMiB);
    EXPECT_EQ(segments.Alloc(41 * kMiB + kMiB / 2, kMiB, 0, 4 * kMiB, changes), joined);
    EXPECT_EQ(segments.reserved(), 4 * kMiB);
  }
  TorchSegments segments(kSpare, true);  // from above
  std::vector<Change> changes;
  EXPECT_TRUE(segments.Alloc(44 * kMiB, kMiB, 0, 2 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(42 * kMiB, kMiB, 0, 4 * kMiB, changes));
  EXPECT_EQ(Shown(changes), "alloc 46137344+2097152, map 44040192+2097152");
  EXPECT_EQ(segments.segments().size(), 1U);
}

TEST(TorchSegments, growAroundABlockThatReachesBeyondTwo) {
  TorchSegments segments(kSpare, false);
  std::vector<Change> changes;
  EXPECT_TRUE(segments.Alloc(40 * kMiB, kMiB, 0, 2 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(44 * kMiB, kMiB / 2, 0, 3 * kMiB, changes));
  segments.Free(44 * kMiB);
  changes.clear();
  EXPECT_TRUE(segments.Alloc(41 * kMiB, 6 * kMiB, 0, 10 * kMiB, changes));
  EXPECT_EQ(Shown(changes), "map 44040192+2097152, map 47185920+5242880") << "2 MiB between them, 5 of 10 behind";
  EXPECT_EQ(segments.segments().size(), 1U);
}

TEST(TorchSegments, growNoFurtherThanToTheSpareOnes) {
  TorchSegments segments(64 * kMiB, false);
  std::vector<Change> changes;
  EXPECT_TRUE(segments.Alloc(60 * kMiB, kMiB, 0, 2 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(61 * kMiB, 2 * kMiB, 0, 10 * kMiB, changes));
  EXPECT_EQ(Shown(changes), "alloc 62914560+2097152, map 65011712+2097152, alloc 67108864+6291456");
}

TEST(TorchSegments, growNoFurtherThanToTheNext) {
  TorchSegments segments(kSpare, false);
  std::vector<Change> changes;
  EXPECT_TRUE(segments.Alloc(44 * kMiB, 2 * kMiB, 1, 2 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(40 * kMiB, kMiB, 0, 4 * kMiB, changes));
  EXPECT_TRUE(segments.Alloc(41 * kMiB, 2 * kMiB, 0, 8 * kMiB, changes));
  EXPECT_EQ(Shown(changes),
            "alloc 46137344+2097152, alloc 41943040+2097152, map 44040192+2097152, alloc 35184372088832+2097152");
}

TEST(TorchSegments, refuseABlockOverAnotherOne) {
  TorchSegments segments(kSpare, false);
  std::vector<Change> changes;
  EXPECT_TRUE(segments.Alloc(4096, 1000, 0, 1000, changes));
  EXPECT_FALSE(segments.Alloc(5000, 1000, 0, 2000, changes));
  EXPECT_FALSE(segments.Alloc(4000, 97, 0, 2000, changes));
  EXPECT_TRUE(segments.Alloc(4000, 96, 0, 2000, changes));
}

TEST(TorchSegments, partsGoWhereNoWholeSegmentIsIdle) {
  TorchSegments segments(kSpare, false);
  std::vector<Change> changes;
  EXPECT_TRUE(segments.Alloc(20 * kMiB, kMiB, 0, 20 * kMiB, changes));
  segments.Reserve(12 * kMiB, changes);
  EXPECT_EQ(Shown(changes), "alloc 20971520+20971520, unmap 33554432+8388608");
  segments.Reserve(0, changes);
  EXPECT_EQ(segments.reserved(), kMiB) << "a live block stays";
}

/// The segments that a viewer finds from the changes alone, which it also plays backwards.
class Viewer {
 public:
  void Forward(const Change& change) {
    if (change.kind == Change::Kind::alloc) {
      Insert(change, false);
    } else if (change.kind == Change::Kind::free) {
      Remove(change);
    } else if (change.kind == Change::Kind::map) {
      Insert(change, true);
    } else {
      Cut(change);
    }
  }
  void Backward(const Change& change) {
    if (change.kind == Change::Kind::alloc) {
      Remove(change);
    } else if (change.kind == Change::Kind::free) {
      Insert(change, false);
    } else if (change.kind == Change::Kind::map) {
      Cut(change);
    } else {
      Insert(change, true);
    }
  }
  bool Holds(std::uint64_t address, std::int64_t n_bytes) const {
    auto segment = segments.upper_bound(address);
    return segment != segments.begin() && (--segment)->first + static_cast<std::uint64_t>(segment->second.first) >=
                                              address + static_cast<std::uint64_t>(n_bytes);
  }

  std::map<std::uint64_t, std::pair<std::int64_t, std::uint16_t>> segments;  // bytes, stream

 private:
  void Insert(const Change& change, bool merge) {
    ASSERT_TRUE(segments.try_emplace(change.address, change.n_bytes, change.stream).second);
    auto at = segments.find(change.address);
    const auto touches = [](auto a, auto b) {
      return a->first + static_cast<std::uint64_t>(a->second.first) == b->first && a->second.second == b->second.second;
    };
    if (merge && std::next(at) != segments.end() && touches(at, std::next(at))) {
      at->second.first += std::next(at)->second.first;
      segments.erase(std::next(at));
    }
    if (merge && at != segments.begin() && touches(std::prev(at), at)) {
      std::prev(at)->second.first += at->second.first;
      segments.erase(at);
    }
  }
  void Remove(const Change& change) {
    const auto at = segments.find(change.address);
    ASSERT_NE(at, segments.end());
    ASSERT_EQ(at->second.first, change.n_bytes);
    segments.erase(at);
  }
  void Cut(const Change& change) {
    ASSERT_TRUE(Holds(change.address, change.n_bytes)) << change.address << "+" << change.n_bytes;
    const auto at = std::prev(segments.upper_bound(change.address));
    const std::uint64_t begin = at->first, end = begin + static_cast<std::uint64_t>(at->second.first);
    const std::uint64_t to = change.address + static_cast<std::uint64_t>(change.n_bytes);
    const std::uint16_t stream = at->second.second;
    segments.erase(at);
    if (begin < change.address) {
      segments[begin] = {static_cast<std::int64_t>(change.address - begin), stream};
    }
    if (to < end) {
      segments[to] = {static_cast<std::int64_t>(end - to), stream};
    }
  }
};

TEST(TorchSegments, ofRandomBlocksHoldEveryBlockForwardsAndBackwards) {
  std::mt19937 random(20261123);
  const auto roll = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    TorchSegments segments(kSpare, round % 2 == 1);
    std::vector<Change> changes;
    std::vector<std::size_t> changes_before;
    std::map<std::uint64_t, std::int64_t> live;
    std::vector<std::map<std::uint64_t, std::int64_t>> states = {live};
    for (int step = 0; step < 60; ++step) {
      changes_before.push_back(changes.size());
      const std::int64_t slack = roll(3) == 0 ? roll(64) * 512 : 16384;
      std::int64_t bytes = 0;
      for (const auto& [address, n_bytes] : live) {
        bytes += n_bytes;
      }
      if (live.empty() || roll(5) < 3) {
        const auto address = static_cast<std::uint64_t>(4096 + roll(200) * 512);
        const std::int64_t n_bytes = (1 + roll(8)) * 512;
        const auto stream = static_cast<std::uint16_t>(address / 40960 % 2);
        TorchSegments tried = segments;
        if (roll(2) == 0) {
          tried.MakeRoom(address, n_bytes, bytes + n_bytes + slack, changes);
        }
        if (tried.Alloc(address, n_bytes, stream, bytes + n_bytes + slack, changes)) {
          segments = tried;
          live[address] = n_bytes;
          ASSERT_GE(segments.reserved(), bytes + n_bytes + slack);
          ASSERT_LE(segments.reserved(), bytes + n_bytes + slack + kBetween);
        } else {
          changes.resize(changes_before.back());
        }
      } else {
        const auto chosen = std::next(live.begin(), roll(static_cast<int>(live.size())));
        segments.Free(chosen->first);
        const std::int64_t target = bytes - chosen->second + slack;
        live.erase(chosen);
        segments.Reserve(target, changes);
        ASSERT_GE(segments.reserved(), target);
        ASSERT_LE(segments.reserved(), target + kBetween);
      }
      states.push_back(live);
    }
    Viewer viewer;
    for (const Change& change : changes) {
      viewer.Forward(change);
      ASSERT_FALSE(HasFatalFailure()) << Shown(changes);
    }
    std::map<std::uint64_t, std::pair<std::int64_t, std::uint16_t>> found;
    for (const auto& [address, segment] : segments.segments()) {
      found[address] = {segment.n_bytes, segment.stream};
    }
    ASSERT_EQ(viewer.segments, found);
    for (std::size_t step = states.size(); step-- > 0;) {
      for (const auto& [address, n_bytes] : states[step]) {
        ASSERT_TRUE(viewer.Holds(address, n_bytes)) << step;
      }
      for (std::size_t i = changes.size(); step > 0 && i > changes_before[step - 1]; --i) {
        viewer.Backward(changes[i - 1]);
        changes.resize(i - 1);
        ASSERT_FALSE(HasFatalFailure()) << step;
      }
    }
    ASSERT_TRUE(viewer.segments.empty());
  }
}

}  // namespace
}  // namespace tidemark::torch_segments_test
