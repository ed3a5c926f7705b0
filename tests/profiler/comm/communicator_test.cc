// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/communicator.h"

#include <gtest/gtest.h>

#include <vector>

namespace tidemark::communicator_test {
namespace {

TEST(Messages, OfOneTagArriveInTheOrderInWhichTheyWereSent) {
  const auto world = MakeSingleWorld();
  const auto group = *world->Split(0);
  std::vector<double> first = {1, 2}, second = {3, 4}, third = {5, 6};
  ASSERT_TRUE(group->Send({0, 7, DType::fp64, 2}, first.data()).ok());
  ASSERT_TRUE(group->Send({0, 7, DType::fp64, 2}, second.data()).ok());
  ASSERT_TRUE(group->Send({0, 8, DType::fp64, 2}, third.data()).ok());
  first = second = third = {0, 0};  // the memory is the sender's again
  std::vector<double> received(6);
  for (const auto& [tag, at] : {std::pair{8, 0}, {7, 2}, {7, 4}}) {
    const auto ticket = group->Receive({0, tag, DType::fp64, 2}, &received[static_cast<std::size_t>(at)]);
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(group->Finish(*ticket).ok());
  }
  EXPECT_EQ(received, (std::vector<double>{5, 6, 1, 2, 3, 4}));
}

TEST(Messages, OfOneRankThatWereNeverSentAreAFault) {
  const auto world = MakeSingleWorld();
  const auto group = *world->Split(0);
  double value = 1;
  EXPECT_FALSE(group->Receive({0, 0, DType::fp64, 1}, &value).ok());
  ASSERT_TRUE(group->Send({0, 0, DType::fp64, 1}, &value).ok());
  EXPECT_FALSE(group->Receive({0, 0, DType::fp32, 1}, &value).ok());  // of another size
}

}  // namespace
}  // namespace tidemark::communicator_test
