// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/lent_rooms.h"

#include <iterator>

namespace tidemark {

std::shared_ptr<DeviceRoom> LentRooms::Lend(Bytes bytes, std::uint32_t stream) {
  std::pair key(stream, bytes);
  std::unique_ptr<DeviceRoom> room;
  const auto at_least = free_->lower_bound(key);
  if (at_least != free_->end() && at_least->first.first == stream) {
    key = at_least->first;
    room = std::move(at_least->second);
    free_->erase(at_least);
  } else {
    if (at_least != free_->begin() && std::prev(at_least)->first.first == stream) {
      free_->erase(std::prev(at_least));  // a larger one in its place
    }
    room = device_.RoomFor(bytes);
  }
  return {room.release(),
          [free = free_, key](DeviceRoom* back) { free->emplace(key, std::unique_ptr<DeviceRoom>(back)); }};
}

}  // namespace tidemark
