// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/staged.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/profiler/comm/looped_ranks.h"

namespace tidemark::staged_test {
namespace {

/// "Device memory" is memory of the test under other addresses, which fault where anybody but a copy uses them.
constexpr std::uintptr_t kDisguise = std::uintptr_t{1} << 63;

template <class T>
T* Disguised(T* pointer) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) ^ kDisguise);
}

/// Copies, and counts what went each way.
struct Copied {
  Bytes fetched, put;
  std::vector<void*> streams;

  DeviceCopies Copies() {
    return {[this](const void* device, void* host, Bytes bytes, void* stream) -> Status {
              fetched = fetched + bytes;
              streams.push_back(stream);
              std::memcpy(host, Disguised(device), static_cast<std::size_t>(bytes.count()));
              return Done{};
            },
            [this](const void* host, void* device, Bytes bytes, void* stream) -> Status {
              put = put + bytes;
              streams.push_back(stream);
              std::memcpy(Disguised(device), host, static_cast<std::size_t>(bytes.count()));
              return Done{};
            }};
  }
};

/// All ranks of a group, staged over ranks in a loop.
struct StagedRanks {
  explicit StagedRanks(std::int64_t ranks) : loop(ranks), copied(static_cast<std::size_t>(ranks)) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      all.push_back(MakeStagedCommunicator(loop.Of(rank), copied[static_cast<std::size_t>(rank)].Copies()));
    }
  }

  LoopedRanks loop;
  std::vector<Copied> copied;
  std::vector<std::unique_ptr<Communicator>> all;
};

TEST(Staged, ExchangesDoInDeviceMemoryWhatTheHostsDoInTheirs) {
  for (const ExchangeCase& one : ExchangeCases()) {
    ExchangeMemory expected(one), memory(one);
    StagedRanks ranks(one.ranks);
    std::vector<Exchange> exchanges;
    std::vector<Communicator::Ticket> tickets;
    for (std::int64_t rank = 0; rank < one.ranks; ++rank) {
      exchanges.push_back(expected.Of(rank));
      Exchange exchange = memory.Of(rank);
      exchange.from = Disguised(exchange.from);
      exchange.to = Disguised(exchange.to);
      tickets.push_back(*ranks.all[static_cast<std::size_t>(rank)]->Begin(exchange));
    }
    DoExchange(exchanges);
    for (std::size_t rank = 0; rank < tickets.size(); ++rank) {
      ASSERT_TRUE(ranks.all[rank]->Finish(tickets[rank]).ok());
    }
    EXPECT_EQ(memory, expected) << one.Text();
  }
}

TEST(Staged, ExchangesCopyWhatARankGivesAndGetsAndNoMore) {
  StagedRanks ranks(2);
  std::vector<float> whole(6), part(3);
  int stream = 0;
  const auto traffic = [&](CollectiveKind kind, const void* from, void* to) {
    std::vector<Communicator::Ticket> tickets;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ranks.copied[rank].fetched = ranks.copied[rank].put = Bytes(0);
      tickets.push_back(
          *ranks.all[rank]->Begin({kind, Reduction::sum, DType::fp32, 6, Disguised(from), Disguised(to), 0, &stream}));
      EXPECT_EQ(ranks.copied[rank].put, Bytes(0));  // it is not done
    }
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(ranks.all[rank]->Finish(tickets[rank]).ok());
    }
    return std::pair{ranks.copied[1].fetched.count(), ranks.copied[1].put.count()};
  };
  EXPECT_EQ(traffic(CollectiveKind::all_reduce, whole.data(), whole.data()), std::pair(24L, 24L));
  EXPECT_EQ(traffic(CollectiveKind::reduce_scatter, whole.data(), part.data()), std::pair(24L, 12L));
  EXPECT_EQ(traffic(CollectiveKind::all_gather, part.data(), whole.data()), std::pair(12L, 24L));
  std::vector<float> other(6);
  EXPECT_EQ(traffic(CollectiveKind::all_to_all, whole.data(), other.data()), std::pair(24L, 24L));
  EXPECT_EQ(traffic(CollectiveKind::broadcast, whole.data(), whole.data()), std::pair(0L, 24L));  // rank 0 is the root
  EXPECT_EQ(ranks.copied[0].put, Bytes(0));
  for (void* used : ranks.copied[0].streams) {
    EXPECT_EQ(used, &stream);
  }
  EXPECT_FALSE(ranks.all[0]->on_stream());
}

TEST(Staged, MessagesLeaveTheSendersMemoryAndComeInTheirOrder) {
  StagedRanks ranks(2);
  std::vector<double> sent = {1, 2}, received(4);
  ASSERT_TRUE(ranks.all[0]->Send({1, 7, DType::fp64, 2}, Disguised(sent.data())).ok());
  sent = {3, 4};
  ASSERT_TRUE(ranks.all[0]->Send({1, 7, DType::fp64, 2}, Disguised(sent.data())).ok());
  sent = {0, 0};
  for (const std::size_t at : {0U, 2U}) {
    const auto ticket = ranks.all[1]->Receive({0, 7, DType::fp64, 2}, Disguised(&received[at]));
    ASSERT_TRUE(ranks.all[1]->Finish(*ticket).ok());
  }
  EXPECT_EQ(received, (std::vector<double>{1, 2, 3, 4}));
}

TEST(Staged, ExchangesMayBeFinishedInAnyOrder) {
  StagedRanks ranks(1);
  std::vector<float> a = {1}, b = {2}, to_a = {0}, to_b = {0};
  Communicator& rank = *ranks.all[0];
  const auto begin = [&](std::vector<float>& from, std::vector<float>& to) {
    return *rank.Begin(
        {CollectiveKind::all_reduce, Reduction::sum, DType::fp32, 1, Disguised(from.data()), Disguised(to.data())});
  };
  const auto first = begin(a, to_a), second = begin(b, to_b);
  ASSERT_TRUE(rank.Finish(second).ok());
  ASSERT_TRUE(rank.Finish(second).ok());  // it stays done
  EXPECT_EQ(std::pair(to_a[0], to_b[0]), std::pair(0.F, 2.F));
  ASSERT_TRUE(rank.Finish(first).ok());
  EXPECT_EQ(to_a[0], 1.F);
}

TEST(Staged, ACopyThatFailsIsTheFaultOfTheExchange) {
  LoopedRanks loop(1);
  DeviceCopies copies = Copied().Copies();
  copies.fetch = [](const void*, void*, Bytes, void*) -> Status { return BadInput("the device is gone"); };
  const auto rank = MakeStagedCommunicator(loop.Of(0), copies);
  float value = 0;
  const auto begun = rank->Begin({CollectiveKind::all_reduce, Reduction::sum, DType::fp32, 1, &value, &value});
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().message, "the device is gone");
}

}  // namespace
}  // namespace tidemark::staged_test
