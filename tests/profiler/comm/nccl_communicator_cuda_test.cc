// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl_communicator_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <span>

#include "tests/profiler/comm/fake_nccl_cuda.h"

namespace tidemark::nccl_communicator_cuda_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Exchange ReduceOf(std::int64_t elements, void* stream, DType dtype = DType::fp32) {
  static float memory[64] = {};
  return {CollectiveKind::all_reduce, Reduction::sum, dtype, elements, memory, memory, 0, stream};
}

struct NcclGroup : ::testing::Test {
  std::string FailureOf(const Status& status) { return status.ok() ? "" : status.error().message; }

  FakeNccl fake;
  NcclTools tools = fake.Tools();
  void* const own = FakeNccl::Stream(7);
};

TEST_F(NcclGroup, MeetsAtItsFirstExchangeAndOnce) {
  const auto group = fake.Group(tools);
  EXPECT_THAT(fake.calls, IsEmpty());
  ASSERT_TRUE(group->Begin(ReduceOf(8, own)).ok());
  ASSERT_TRUE(group->Begin(ReduceOf(9, own, DType::bf16)).ok());
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("join as 1 of 4", "all_reduce sum 8 of type 7 by 1 on 7",
                                            "all_reduce sum 9 of type 9 by 1 on 7"));
}

TEST_F(NcclGroup, MeetsWhenItIsToldTo) {
  const auto group = fake.Group(tools), alone = fake.Group(tools, 1);
  ASSERT_TRUE(group->Join().ok());
  ASSERT_TRUE(group->Join().ok());
  ASSERT_TRUE(alone->Join().ok());
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("join as 1 of 4"));
  ASSERT_TRUE(group->Begin(ReduceOf(8, own)).ok());
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("all_reduce sum 8 of type 7 by 1 on 7"));
}

TEST_F(NcclGroup, GivesNcclItsOwnNamesOfTypesAndReductions) {
  const auto group = fake.Group(tools);
  for (const auto& [dtype, type] : {std::pair{DType::fp64, ncclFloat64},
                                    {DType::fp16, ncclFloat16},
                                    {DType::int64, ncclInt64},
                                    {DType::int32, ncclInt32},
                                    {DType::u8, ncclUint8}}) {
    Exchange exchange = ReduceOf(4, own, dtype);
    exchange.reduction = Reduction::max;
    ASSERT_TRUE(group->Begin(exchange).ok());
    EXPECT_EQ(fake.calls.back(), fmt::format("all_reduce max 4 of type {} by 1 on 7", static_cast<int>(type)));
  }
}

TEST_F(NcclGroup, PutsUnevenPartsIntoOneGroupOfCalls) {
  const auto group = fake.Group(tools);
  Exchange exchange = ReduceOf(5, own);
  exchange.kind = CollectiveKind::all_gather;
  ASSERT_TRUE(group->Begin(exchange).ok());
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("join as 1 of 4", "group start", "broadcast from 0: 2 of type 7 by 1 on 7",
                                            "broadcast from 1: 2 of type 7 by 1 on 7",
                                            "broadcast from 2: 1 of type 7 by 1 on 7", "group end"));
  fake.fail["reduce"] = ncclInvalidArgument;
  exchange.kind = CollectiveKind::reduce_scatter;
  EXPECT_FALSE(group->Begin(exchange).ok());
  EXPECT_THAT(fake.TakeCalls(),  // the group is closed nevertheless
              ElementsAre("group start", "reduce to 0: 2 of type 7 by 1 on 7", "group end", "abort 1"));
}

TEST_F(NcclGroup, PutsMessagesToAllIntoOneGroupOfCalls) {
  const auto group = fake.Group(tools, 2);
  std::vector<float> from(4), to(4);
  ASSERT_TRUE(
      group->Begin({CollectiveKind::all_to_all, Reduction::none, DType::fp32, 4, from.data(), to.data(), 0, own}).ok());
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("join as 1 of 2", "group start", "send 2 of type 7 by 1 on 7",
                                            "receive 2 of type 7 by 1 on 7", "send 2 of type 7 by 1 on 7",
                                            "receive 2 of type 7 by 1 on 7", "group end"));
}

TEST_F(NcclGroup, OfOneRankCopiesAndNeedsNoNccl) {
  const auto group = fake.Group(tools, 1);
  std::vector<float> from = {1, 2}, to = {0, 0};
  ASSERT_TRUE(
      group->Begin({CollectiveKind::all_gather, Reduction::none, DType::fp32, 2, from.data(), to.data(), 0, own}).ok());
  ASSERT_TRUE(group->Begin(ReduceOf(8, own)).ok());  // in place: nothing to do
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("copy 8 bytes on 7"));
  EXPECT_EQ(to, from);
}

TEST_F(NcclGroup, FinishWaitsForTheEventAndLeavesNoErrorBehind) {
  fake.queries_until_done = 3;
  const auto group = fake.Group(tools);
  const auto ticket = group->Begin(ReduceOf(8, own));
  ASSERT_TRUE(group->Finish(*ticket).ok());
  EXPECT_GE(fake.cleared, 2);                // each "not ready"
  ASSERT_TRUE(group->Finish(*ticket).ok());  // it stays done
}

TEST_F(NcclGroup, DropsWhatIsDoneWhereNobodyFinishesIt) {
  const auto group = fake.Group(tools);
  Communicator::Ticket first = 0, last = 0;
  for (int i = 0; i < 100; ++i) {
    last = *group->Begin(ReduceOf(8, own));
    first = i == 0 ? last : first;
  }
  EXPECT_LE(fake.events, 2);
  EXPECT_NE(first, last);
  EXPECT_TRUE(group->Finish(first).ok());
  EXPECT_TRUE(group->Finish(last).ok());
}

TEST_F(NcclGroup, APeerThatDiesEndsItWithTheNameOfTheCollective) {
  fake.stuck = {own};
  {
    const auto group = fake.Group(tools);
    const auto ticket = group->Begin(ReduceOf(8, own));
    fake.states[1] = ncclRemoteError;
    const Status finished = group->Finish(*ticket);
    EXPECT_EQ(FailureOf(finished),
              "NCCL: all_reduce of 8 fp32 among 4 ranks failed: remote error: connection closed by peer");
    fake.TakeCalls();
    const auto next = group->Begin(ReduceOf(9, own));
    ASSERT_FALSE(next.ok());
    EXPECT_EQ(next.error().message, finished.error().message);  // the first fault, not its consequences
    EXPECT_EQ(FailureOf(group->Finish(*ticket)), finished.error().message);
  }
  EXPECT_THAT(fake.calls, IsEmpty());  // aborted once, neither used nor destroyed after that
  EXPECT_EQ(fake.events, 0);
}

TEST_F(NcclGroup, WhoWaitsTooLongIsToldForWhat) {
  tools.patience = Nanos(200'000'000);
  fake.stuck = {own};
  const auto group = fake.Group(tools);
  const auto ticket = group->Begin(ReduceOf(8, own));
  EXPECT_THAT(FailureOf(group->Finish(*ticket)),
              HasSubstr("all_reduce of 8 fp32 among 4 ranks failed: it was not done"));
  EXPECT_EQ(fake.calls.back(), "abort 1");
}

TEST_F(NcclGroup, OthersThatNeverComeAreWaitedForSoLong) {
  tools.patience = Nanos(5'000'000);
  const auto never = std::make_shared<std::promise<void>>();
  fake.before_join = [never] {
    never->get_future().wait();
    return false;
  };
  const auto group = fake.Group(tools);
  const auto begun = group->Begin(ReduceOf(8, own));
  ASSERT_FALSE(begun.ok());
  EXPECT_THAT(begun.error().message, HasSubstr("the first meeting"));
  EXPECT_THAT(begun.error().message, HasSubstr("some have not come in time"));
  never->set_value();
}

TEST_F(NcclGroup, ThatEndsGivesWhatIsUnderWayTimeAndThenAbortsIt) {
  tools.farewell = Nanos(60'000'000'000);
  fake.queries_until_done = 3;
  auto group = fake.Group(tools);
  ASSERT_TRUE(group->Begin(ReduceOf(8, own)).ok());
  fake.TakeCalls();
  group.reset();
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("destroy 1"));
  group = fake.Group(tools);
  tools.farewell = Nanos(2'000'000);
  fake.stuck = {own};
  ASSERT_TRUE(group->Begin(ReduceOf(8, own)).ok());
  fake.TakeCalls();
  group.reset();
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("abort 2"));
  EXPECT_EQ(fake.events, 0);
}

TEST_F(NcclGroup, OpensItsWaysInTheSameOrderOnBothEnds) {
  const auto group = fake.Group(tools);
  const std::vector<Route> routes = {{1, 2, 1}, {1, 0, 0}, {1, 2, 0}, {0, 1, 0}};
  ASSERT_TRUE(group->Connect(routes).ok());
  EXPECT_THAT(fake.TakeCalls(),
              ElementsAre("take id from 0 for 0", "join as 1 of 2", "receive 1 of type 1 by 1 on 101",  //
                          "make id", "give id to 0 for 0", "join as 0 of 2", "send 1 of type 1 by 2 on 102", "make id",
                          "give id to 2 for 0", "join as 0 of 2", "send 1 of type 1 by 3 on 103", "make id",
                          "give id to 2 for 1", "join as 0 of 2", "send 1 of type 1 by 4 on 104"));
  ASSERT_TRUE(group->Connect(routes).ok());
  EXPECT_THAT(fake.calls, IsEmpty());  // they are open
  EXPECT_FALSE(group->Connect(std::vector<Route>{{2, 3, 0}}).ok());
}

TEST_F(NcclGroup, SendsACopyOnAStreamOfTheWaysOwn) {
  const auto group = fake.Group(tools);
  ASSERT_TRUE(group->Connect(std::vector<Route>{{1, 2, 0}}).ok());
  fake.TakeCalls();
  std::vector<float> data = {3, 4};
  ASSERT_TRUE(group->Send({2, 0, DType::fp32, 2, own}, data.data()).ok());
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("copy 8 bytes on 7", "101 waits for 7", "send 2 of type 7 by 1 on 101"));
  data = {0, 0};
  EXPECT_EQ(static_cast<const float*>(fake.sent)[1], 4.F);
}

TEST_F(NcclGroup, KeepsCopiesUntilTheyAreSentAndUsesThemAgain) {
  tools.farewell = Nanos(0);
  const auto group = fake.Group(tools);
  ASSERT_TRUE(group->Connect(std::vector<Route>{{1, 2, 0}}).ok());
  const std::int64_t before = group->staging().count();
  std::vector<float> data(4);
  const auto send = [&](std::int64_t elements) {
    EXPECT_TRUE(group->Send({2, 0, DType::fp32, elements, own}, data.data()).ok());
    return group->staging().count() - before;
  };
  fake.stuck = {FakeNccl::Stream(101)};  // the receiver does not come
  EXPECT_EQ(send(4), 16);
  EXPECT_EQ(send(4), 32);
  fake.stuck.clear();
  EXPECT_EQ(send(3), 32);  // now both are free, and the smaller need finds room
}

TEST_F(NcclGroup, ReceivesOnTheCallersStream) {
  const auto group = fake.Group(tools);
  ASSERT_TRUE(group->Connect(std::vector<Route>{{3, 1, 5}}).ok());
  fake.TakeCalls();
  std::vector<float> data(2);
  const auto ticket = group->Receive({3, 5, DType::fp32, 2, own}, data.data());
  ASSERT_TRUE(ticket.ok());
  EXPECT_THAT(fake.TakeCalls(), ElementsAre("receive 2 of type 7 by 1 on 7"));
  EXPECT_TRUE(group->Finish(*ticket).ok());
}

TEST_F(NcclGroup, HearsOfAMessageThatCannotArriveWhateverItWaitsFor) {
  const auto group = fake.Group(tools);
  ASSERT_TRUE(group->Connect(std::vector<Route>{{1, 2, 0}}).ok());
  fake.stuck = {own};
  const auto ticket = group->Begin(ReduceOf(8, own));
  fake.states[1] = ncclRemoteError;  // of the way
  EXPECT_THAT(FailureOf(group->Finish(*ticket)), HasSubstr("a message with rank 2"));
  EXPECT_THAT(fake.calls, Contains("abort 1"));
  EXPECT_THAT(fake.calls, Contains("abort 2"));
  EXPECT_THAT(fake.calls, Not(Contains("destroy 2")));
}

}  // namespace
}  // namespace tidemark::nccl_communicator_cuda_test
