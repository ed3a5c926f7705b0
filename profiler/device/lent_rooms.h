// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/quantity.h"
#include "profiler/device/device.h"

namespace tidemark {

/// Rooms of a device (Device::RoomFor) that are lent again and again: to make or to drop one, a GPU waits for all of
/// its work. There are as many for a stream as were ever lent to it at one time. All are dropped with this and the last
/// that is lent.
class LentRooms {
 public:
  explicit LentRooms(Device& device) : device_(device), free_(std::make_shared<Free>()) {}

  /// Room for `bytes` or more, for work of one stream. Whoever lends it next gives its work to the same stream: it
  /// comes behind.
  std::shared_ptr<DeviceRoom> Lend(Bytes bytes, std::uint32_t stream);

 private:
  using Free = std::multimap<std::pair<std::uint32_t, Bytes>, std::unique_ptr<DeviceRoom>>;  ///< by stream and size

  Device& device_;
  std::shared_ptr<Free> free_;
};

}  // namespace tidemark
