// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl_calls.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/profiler/comm/looped_ranks.h"

namespace tidemark::nccl_calls_test {
namespace {

using Kind = NcclCall::Kind;

std::vector<NcclCall> CallsOf(const Exchange& exchange, std::int64_t rank, std::int64_t ranks) {
  const auto calls = NcclCallsOf(exchange, rank, ranks);
  EXPECT_TRUE(calls.ok()) << calls.error().Text();
  return calls.ok() ? *calls : std::vector<NcclCall>();
}

/// One call of all ranks, as nccl.h describes it.
void Do(const std::vector<NcclCall>& calls) {
  const auto ranks = std::ssize(calls);
  const NcclCall& any = calls[0];
  const auto root = static_cast<std::size_t>(any.root);
  std::vector<const void*> from;
  std::vector<double> gathered;
  for (const NcclCall& call : calls) {
    EXPECT_EQ(std::tie(call.kind, call.count, call.dtype, call.maximum, call.root),
              std::tie(any.kind, any.count, any.dtype, any.maximum, any.root));  // all ranks must say the same
    from.push_back(call.from);
    if (any.kind == Kind::all_gather) {
      const std::vector<double> part = NumbersAt(any.dtype, call.from, any.count);
      gathered.insert(gathered.end(), part.begin(), part.end());
    }
  }
  if (any.kind == Kind::broadcast) {
    gathered = NumbersAt(any.dtype, from[root], any.count);
  } else if (any.kind != Kind::all_gather) {
    gathered = ReducedOver(from, any.dtype, any.count * (any.kind == Kind::reduce_scatter ? ranks : 1), any.maximum);
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (any.kind == Kind::reduce && rank != any.root) {
      continue;
    }
    const auto begin = gathered.begin() + (any.kind == Kind::reduce_scatter ? rank * any.count : 0);
    const auto end = any.kind == Kind::reduce_scatter ? begin + any.count : gathered.end();
    Written{any.dtype, calls[static_cast<std::size_t>(rank)].to, {begin, end}}.Put();
  }
}

/// Messages of one group: each to whoever receives from its sender.
void DoMessages(const std::vector<std::vector<NcclCall>>& calls) {
  using Way = std::pair<std::int64_t, std::int64_t>;
  std::map<Way, std::vector<double>> sent;
  const auto each = [&](Kind kind, auto body) {
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      for (const NcclCall& call : calls[rank]) {
        if (call.kind == kind) {
          body(static_cast<std::int64_t>(rank), call);
        }
      }
    }
  };
  each(Kind::send, [&](std::int64_t rank, const NcclCall& call) {
    EXPECT_TRUE(sent.emplace(Way{rank, call.root}, NumbersAt(call.dtype, call.from, call.count)).second);
  });
  each(Kind::receive, [&](std::int64_t rank, const NcclCall& call) {
    const auto message = sent.extract(Way{call.root, rank});
    ASSERT_FALSE(message.empty());
    ASSERT_EQ(std::ssize(message.mapped()), call.count);
    Written{call.dtype, call.to, message.mapped()}.Put();
  });
  EXPECT_TRUE(sent.empty()) << "a message that nobody receives";
}

void DoInCalls(const std::vector<Exchange>& exchanges) {
  const auto ranks = std::ssize(exchanges);
  std::vector<std::vector<NcclCall>> calls;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    calls.push_back(CallsOf(exchanges[static_cast<std::size_t>(rank)], rank, ranks));
    ASSERT_EQ(calls.back().size(), calls.front().size());
  }
  if (!calls.front().empty() && calls.front().front().kind == Kind::send) {
    return DoMessages(calls);
  }
  for (std::size_t i = 0; i < calls.front().size(); ++i) {
    std::vector<NcclCall> one;
    for (const std::vector<NcclCall>& own : calls) {
      one.push_back(own[i]);
    }
    Do(one);
  }
}

std::vector<Exchange> ExchangesOf(const ExchangeCase& one, ExchangeMemory& memory) {
  std::vector<Exchange> exchanges;
  for (std::int64_t rank = 0; rank < one.ranks; ++rank) {
    exchanges.push_back(memory.Of(rank));
  }
  return exchanges;
}

TEST(NcclCalls, DoWhatTheExchangeSaysAndTouchNothingElse) {
  for (const ExchangeCase& one : ExchangeCases()) {
    ExchangeMemory expected(one), memory(one);
    DoExchange(ExchangesOf(one, expected));
    DoInCalls(ExchangesOf(one, memory));
    EXPECT_EQ(memory, expected) << one.Text();
  }
}

// What holds the expectation itself: it is that of the communicator without MPI.
TEST(NcclCalls, OfOneRankAreExpectedToDoWhatTheSingleWorldDoes) {
  for (const ExchangeCase& one : ExchangeCases()) {
    if (one.ranks != 1) {
      continue;
    }
    ExchangeMemory expected(one), memory(one);
    DoExchange(ExchangesOf(one, expected));
    const auto world = MakeSingleWorld();
    const auto group = *world->Split(0);
    ASSERT_TRUE(group->Finish(*group->Begin(memory.Of(0))).ok());
    EXPECT_EQ(memory, expected) << one.Text();
  }
}

TEST(NcclCalls, AreOneOfEqualPartsAndAGroupOfThoseThatAreNot) {
  std::vector<float> whole(8), part(3);
  Exchange scatter{CollectiveKind::reduce_scatter, Reduction::sum, DType::fp32, 8, whole.data(), part.data()};
  EXPECT_EQ(CallsOf(scatter, 1, 4),
            std::vector<NcclCall>({{Kind::reduce_scatter, whole.data(), part.data(), 2, DType::fp32, false, 0}}));
  EXPECT_EQ(CallsOf(scatter, 1, 3),
            std::vector<NcclCall>({{Kind::reduce, &whole[0], nullptr, 3, DType::fp32, false, 0},
                                   {Kind::reduce, &whole[3], part.data(), 3, DType::fp32, false, 1},
                                   {Kind::reduce, &whole[6], nullptr, 2, DType::fp32, false, 2}}));
  const Exchange gather{CollectiveKind::all_gather, Reduction::none, DType::fp32, 2, part.data(), whole.data()};
  EXPECT_EQ(CallsOf(gather, 0, 4),  // two ranks have nothing
            std::vector<NcclCall>({{Kind::broadcast, part.data(), &whole[0], 1, DType::fp32, false, 0},
                                   {Kind::broadcast, &whole[1], &whole[1], 1, DType::fp32, false, 1}}));
}

TEST(NcclCalls, AreRefusedForWhatAnExchangeIsNot) {
  float value = 0;
  Exchange exchange{CollectiveKind::all_to_all, Reduction::none, DType::fp32, 1, &value, &value};
  EXPECT_FALSE(NcclCallsOf(exchange, 0, 2).ok()) << "one element for two ranks";
  exchange.kind = CollectiveKind::reduce;
  EXPECT_FALSE(NcclCallsOf(exchange, 0, 2).ok());
  exchange.kind = CollectiveKind::broadcast;
  EXPECT_TRUE(NcclCallsOf(exchange, 0, 2).ok());
  exchange.root = 2;
  EXPECT_FALSE(NcclCallsOf(exchange, 0, 2).ok());
}

}  // namespace
}  // namespace tidemark::nccl_calls_test
