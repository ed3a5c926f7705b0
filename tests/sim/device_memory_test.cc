// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/device_memory.h"

#include <gtest/gtest.h>

#include <limits>

namespace tidemark::device_memory_test {
namespace {

constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());

TEST(DeviceMemory, GrantsToTheLastByteAndRemembersTheHighest) {
  const auto device = MakePretendMemory(Bytes(100));
  const auto first = device->Take(Bytes(60));
  const auto second = device->Take(Bytes(40));
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(*first + 60 <= *second || *second + 40 <= *first) << "the pieces overlap";
  EXPECT_FALSE(device->Take(Bytes(1)));
  device->Give(*first, Bytes(60));
  EXPECT_EQ(device->taken(), Bytes(40));
  EXPECT_EQ(device->highest(), Bytes(100));
  EXPECT_EQ(device->times_taken(), 2);
  EXPECT_EQ(device->times_given(), 1);
}

TEST(DeviceMemory, SaysWhatWouldHaveBeenEnoughForTheSmallestRefusal) {
  const auto device = MakePretendMemory(Bytes(100));
  EXPECT_FALSE(device->enough_for_next().has_value());
  EXPECT_TRUE(device->Take(Bytes(90)));
  EXPECT_FALSE(device->Take(Bytes(30)));   // 120 would do
  EXPECT_FALSE(device->Take(Bytes(15)));   // 105 would do
  EXPECT_FALSE(device->Take(kUnlimited));  // more than can be said
  EXPECT_EQ(device->enough_for_next(), Bytes(105));
}

TEST(DeviceMemory, MapsWithinARangeThatBeginsAtAWholePage) {
  const auto device = MakePretendMemory(Bytes(100));
  device->Take(Bytes(7));  // so that the next free address is no multiple of anything
  const Bytes page = Bytes(30);
  const auto range = device->Reserve(page);
  ASSERT_TRUE(range);
  EXPECT_EQ(*range % 30, 0U);
  EXPECT_EQ(device->taken(), Bytes(7)) << "addresses are no memory";
  EXPECT_TRUE(device->Map(*range, Bytes(90)));
  EXPECT_FALSE(device->Map(*range + 90, page));
  EXPECT_EQ(device->enough_for_next(), Bytes(127));
  device->Unmap(*range + 30, page);
  EXPECT_EQ(device->taken(), Bytes(67));
}

TEST(DeviceMemory, UsesARangeAgainThatWasGivenUp) {
  const auto device = MakePretendMemory(Bytes(100));
  const auto first = device->Reserve(Bytes(10));
  const auto other = device->Reserve(Bytes(20));
  device->Release(*first, Bytes(10));
  EXPECT_NE(device->Reserve(Bytes(20)), other);
  EXPECT_EQ(device->Reserve(Bytes(10)), first);
}

TEST(DeviceMemory, SaysAtWhichCapacityAShareOfItIsEnough) {
  const auto device = MakePretendMemory(Bytes(100));
  const auto half = [](Bytes capacity) { return capacity / 2; };
  EXPECT_TRUE(device->Covers(Bytes(50), half));
  EXPECT_FALSE(device->enough_for_next().has_value());
  EXPECT_FALSE(device->Covers(Bytes(51), half));
  EXPECT_EQ(device->enough_for_next(), Bytes(102));
}

TEST(DeviceMemory, OnAnotherCapacityHasTheSameTakenAndNothingRefused) {
  const auto device = MakePretendMemory(Bytes(100));
  const auto piece = device->Take(Bytes(90));
  EXPECT_FALSE(device->Take(Bytes(20)));
  const auto larger = device->On(Bytes(110));
  EXPECT_FALSE(larger->enough_for_next().has_value());
  EXPECT_TRUE(larger->Take(Bytes(20)));
  larger->Give(*piece, Bytes(90));
  EXPECT_EQ(larger->taken(), Bytes(20));
  EXPECT_EQ(larger->highest(), Bytes(110));
  EXPECT_EQ(device->taken(), Bytes(90));
}

TEST(DeviceMemoryDeathTest, GivingBackMoreThanWasTakenIsAFaultOfOurs) {
  const auto device = MakePretendMemory(Bytes(100));
  EXPECT_EXIT(device->Give(0, Bytes(1)), testing::ExitedWithCode(70), "internal fault");
}

}  // namespace
}  // namespace tidemark::device_memory_test
