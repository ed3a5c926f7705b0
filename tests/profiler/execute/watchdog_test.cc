// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/watchdog.h"

#include <gtest/gtest.h>

#include <functional>

namespace tidemark::watchdog_test {
namespace {

using State = RankProgress::State;
using Ranks = std::vector<std::optional<RankSample>>;

constexpr Nanos kSecond{1'000'000'000};

/// Looks once a second at two ranks that `change` moves; the second in which one was found to stand still.
struct Watched {
  std::int64_t second = -1;
  Watchdog::Stall stall;
};
Watched Watch(std::int64_t seconds, const std::function<void(std::int64_t second, Ranks& ranks)>& change) {
  Watchdog watchdog(kSecond * 20);
  Ranks ranks = {RankSample{.state = State::running, .processor = {}},
                 RankSample{.state = State::running, .processor = {}}};
  for (std::int64_t second = 0; second < seconds; ++second) {
    change(second, ranks);
    if (const auto stall = watchdog.Look(kSecond * second, ranks)) {
      return {second, *stall};
    }
  }
  return {};
}

void Use(std::optional<RankSample>& rank) { rank->processor = rank->processor + Nanos(1'000'000); }

/// Rank 0 waits for rank 1 and turns in a circle, as MPI does.
void WaitForTheOther(Ranks& ranks) {
  ranks[0]->state = State::waiting;
  Use(ranks[0]);
}

TEST(Watchdog, namesTheRankThatStandsStillWhileTheOthersWaitForIt) {
  const Watched found = Watch(100, [](std::int64_t second, Ranks& ranks) {
    WaitForTheOther(ranks);
    if (second <= 5) {
      Use(ranks[1]);  // the last sign of life is seen in second 5
    }
  });
  EXPECT_EQ(found.second, 25);
  EXPECT_EQ(found.stall.rank, 1U);
  EXPECT_FALSE(found.stall.stopped);
}

TEST(Watchdog, aLongKernelUsesTheProcessorAndIsNoHang) {
  const Watched found = Watch(1000, [](std::int64_t, Ranks& ranks) {
    WaitForTheOther(ranks);
    Use(ranks[1]);
  });
  EXPECT_EQ(found.second, -1);
}

TEST(Watchdog, aRankThatSleepsWhileItStartsOrEndsOrWaitsWaitsForOthers) {
  for (const State state : {State::starting, State::ended, State::waiting}) {
    const Watched found = Watch(119, [&](std::int64_t, Ranks& ranks) {
      ranks[0]->state = state;
      ++ranks[1]->beats;
    });
    EXPECT_EQ(found.second, -1);
  }
}

TEST(Watchdog, aRankThatASignalHasStoppedStandsStillWhateverItWasDoing) {
  for (const State state : {State::starting, State::ended, State::waiting, State::running}) {
    const Watched found = Watch(100, [&](std::int64_t, Ranks& ranks) {
      ranks[0]->state = State::waiting;
      Use(ranks[0]);
      ranks[1]->state = state;
      ranks[1]->stopped = true;
    });
    EXPECT_EQ(found.second, 20);
    EXPECT_EQ(found.stall.rank, 1U);
    EXPECT_TRUE(found.stall.stopped);
  }
}

TEST(Watchdog, ranksThatAllWaitAreGivenSixTimesAsLong) {
  const Watched found = Watch(1000, [](std::int64_t, Ranks& ranks) {
    for (auto& rank : ranks) {
      rank->state = State::waiting;
      Use(rank);
    }
  });
  EXPECT_EQ(found.second, 120);
  EXPECT_FALSE(found.stall.rank);
}

TEST(Watchdog, afterAPauseOfWhoeverLooksTimeCountsAnew) {
  Watchdog watchdog(kSecond * 20);
  const Ranks ranks = {RankSample{.state = State::running, .processor = {}}};
  EXPECT_FALSE(watchdog.Look(kSecond, ranks));
  EXPECT_FALSE(watchdog.Look(kSecond * 500, ranks));  // the machine slept
  EXPECT_FALSE(watchdog.Look(kSecond * 501, ranks));
}

TEST(Watchdog, aRankThatHasLeftIsNotWaitedFor) {
  const Watched found = Watch(1000, [](std::int64_t, Ranks& ranks) {
    ranks[1].reset();
    ++ranks[0]->beats;
  });
  EXPECT_EQ(found.second, -1);
}

TEST(RankProgress, saysWhereARankIs) {
  RankProgress progress;
  EXPECT_EQ(progress.place().Text(), "before its first step");
  progress.BeginStep();
  EXPECT_EQ(progress.place().Text(), "in step 1");
  progress.BeginStep();
  progress.SetPhase(Phase::backward, 3);
  EXPECT_EQ(progress.place().Text(), "in the backward of microbatch 3 of step 2");
  progress.SetPhase(Phase::optimizer, -1);
  EXPECT_EQ(progress.place().Text(), "in the optimizer of step 2");
  progress.Enter(State::ended);
  EXPECT_EQ(progress.place().Text(), "after its last step");
}

}  // namespace
}  // namespace tidemark::watchdog_test
