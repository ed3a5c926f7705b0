// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/lent_rooms.h"

#include <gtest/gtest.h>

#include <memory>

#include "profiler/device/host_device.h"

namespace tidemark::lent_rooms_test {
namespace {

/// Counts the rooms that it makes.
class CountingDevice final : public HostDevice {
 public:
  std::unique_ptr<DeviceRoom> RoomFor(Bytes bytes) override {
    ++made;
    return HostDevice::RoomFor(bytes);
  }
  int made = 0;
};

TEST(LentRooms, AreMadeOnceForEachThatIsLentAtATime) {
  CountingDevice device;
  LentRooms rooms(device);
  for (int step = 0; step < 3; ++step) {
    const auto one = rooms.Lend(Bytes(100), 0), other = rooms.Lend(Bytes(100), 0);
    EXPECT_NE(one->data(), other->data());
  }
  EXPECT_EQ(device.made, 2);
  const auto smaller = rooms.Lend(Bytes(10), 0);
  EXPECT_EQ(device.made, 2) << "a larger one is room enough";
}

TEST(LentRooms, GrowInsteadOfMultiplying) {
  CountingDevice device;
  LentRooms rooms(device);
  for (const int bytes : {10, 20, 30}) {
    rooms.Lend(Bytes(bytes), 0);
  }
  EXPECT_EQ(device.made, 3);
  const auto largest = rooms.Lend(Bytes(30), 0), another = rooms.Lend(Bytes(10), 0);
  EXPECT_EQ(device.made, 4) << "the smaller ones went when the larger came";
}

TEST(LentRooms, StayWithTheirStream) {
  CountingDevice device;
  LentRooms rooms(device);
  const void* first = rooms.Lend(Bytes(10), 1)->data();
  const auto elsewhere = rooms.Lend(Bytes(10), 0), above = rooms.Lend(Bytes(10), 2);
  EXPECT_EQ(device.made, 3) << "another stream may still use it";
  EXPECT_EQ(rooms.Lend(Bytes(10), 1)->data(), first);
}

TEST(LentRooms, OutliveWhoLends) {
  CountingDevice device;
  std::shared_ptr<DeviceRoom> room;
  {
    LentRooms rooms(device);
    room = rooms.Lend(Bytes(10), 0);
  }
  static_cast<char*>(room->data())[9] = 1;
  EXPECT_EQ(static_cast<char*>(room->data())[9], 1);
}

}  // namespace
}  // namespace tidemark::lent_rooms_test
