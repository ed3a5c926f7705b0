// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/announced_memory.h"

#include "profiler/capture/heap.h"

namespace tidemark {

AnnouncedMemory::~AnnouncedMemory() {
  for (const std::uint64_t address : heaps_) {
    to_.HeapGoes(address);
  }
}

std::optional<std::uint64_t> AnnouncedMemory::DoTake(Bytes bytes) {
  const auto address = below_->Take(bytes);
  if (address) {
    Comes(*address, bytes);
  }
  return address;
}

void AnnouncedMemory::DoGive(std::uint64_t address, Bytes bytes) {
  Goes(address);
  below_->Give(address, bytes);
}

std::optional<std::uint64_t> AnnouncedMemory::DoReserve(Bytes page) {
  const auto address = below_->Reserve(page);
  if (address) {
    Comes(*address, RangeOf(page));
  }
  return address;
}

void AnnouncedMemory::DoRelease(std::uint64_t address, Bytes page) {
  Goes(address);
  below_->Release(address, page);
}

void AnnouncedMemory::Comes(std::uint64_t address, Bytes bytes) {
  to_.HeapComes(address, bytes);
  const HeapScope scope(HeapOwner::profiler);
  heaps_.insert(address);
}

void AnnouncedMemory::Goes(std::uint64_t address) {
  to_.HeapGoes(address);
  heaps_.erase(address);
}

}  // namespace tidemark
