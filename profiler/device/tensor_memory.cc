// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/tensor_memory.h"

#include <algorithm>
#include <cstring>

namespace tidemark {
namespace {

constexpr int kPoison = 0xff;

void* Pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): an allocator counts in addresses
}

std::uint64_t EndOf(std::uint64_t begin, Bytes bytes) { return begin + static_cast<std::uint64_t>(bytes.count()); }

}  // namespace

std::optional<TensorMemory::Piece> TensorMemory::Allocate(Bytes bytes, std::uint32_t stream) {
  const std::optional<Allocation> allocation = allocator_->Allocate(bytes, stream);
  ForgetWhatTheDeviceTook();
  if (!allocation) {
    return std::nullopt;
  }
  Poison(allocation->address, EndOf(allocation->address, bytes));
  if (bytes > Bytes(0)) {
    live_[allocation->address] = {bytes, allocation->charged};
    live_bytes_ += bytes;
  }
  if (after_allocating_) {
    after_allocating_();
  }
  return Piece{Pointer(allocation->address), bytes, allocation->handle};
}

void TensorMemory::Free(const Piece& piece) {
  if (piece.bytes > Bytes(0)) {
    const auto begin = reinterpret_cast<std::uint64_t>(piece.data);
    std::memset(piece.data, kPoison, static_cast<std::size_t>(piece.bytes.count()));
    poisoned_.emplace(begin, EndOf(begin, piece.bytes));
    live_.erase(begin);
    live_bytes_ -= piece.bytes;
  }
  allocator_->Free(piece.handle);
  ForgetWhatTheDeviceTook();
}

/// Makes [begin, end) hold 0xff, and belong to somebody: only what lies between poisoned stretches is written.
void TensorMemory::Poison(std::uint64_t begin, std::uint64_t end) {
  auto stretch = poisoned_.upper_bound(begin);
  if (stretch != poisoned_.begin()) {
    --stretch;
  }
  std::uint64_t at = begin;
  while (at < end) {
    while (stretch != poisoned_.end() && stretch->second <= at) {
      ++stretch;
    }
    const std::uint64_t next = stretch == poisoned_.end() ? end : std::min(stretch->first, end);
    if (at < next) {
      std::memset(Pointer(at), kPoison, next - at);
      at = next;
    }
    if (at == end || stretch == poisoned_.end()) {
      return;
    }
    const auto [first, last] = *stretch;
    stretch = poisoned_.erase(stretch);
    if (first < at) {
      poisoned_.emplace(first, at);
    }
    if (end < last) {
      poisoned_.emplace(end, last);
    }
    at = std::min(last, end);
  }
}

/// Memory that the device takes back comes again as it likes.
void TensorMemory::ForgetWhatTheDeviceTook() {
  const std::int64_t given = allocator_->device().times_given();
  if (given != times_given_) {
    poisoned_.clear();
    times_given_ = given;
  }
}

}  // namespace tidemark
