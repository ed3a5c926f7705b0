// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/tensor_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tidemark {
namespace {

constexpr int kPoison = 0xff;
/// Where memory is freed that several streams have used, as in PyTorch's backend cudaMallocAsync
/// (c10/cuda/CUDAMallocAsyncAllocator.cpp, dummy_unifying_free_stream): none of these then waits for the others.
constexpr std::uint32_t kFreeingStream = std::numeric_limits<std::uint32_t>::max();

void* TensorAt(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): an allocator counts in addresses
}

std::uint64_t EndOf(std::uint64_t begin, Bytes bytes) { return begin + static_cast<std::uint64_t>(bytes.count()); }

}  // namespace

void TensorMemory::Fill(Poison what) {
  if (what != poison_) {
    left_.clear();  // as they were left; and all work that used them has ended
  }
  poison_ = what;
}

std::optional<TensorMemory::Piece> TensorMemory::Allocate(Bytes bytes, std::uint32_t stream) {
  const std::optional<Allocation> allocation = allocator_->Allocate(bytes, stream);
  ForgetWhatTheDeviceTook();
  if (!allocation) {
    return std::nullopt;
  }
  if (annotations_ != nullptr && bytes > Bytes(0)) {
    annotations_->RegionComes(allocation->address, bytes);
  }
  WaitForUses(allocation->address, EndOf(allocation->address, bytes), stream);
  if (poison_ == Poison::everything || !allocator_->frees_in_stream_order()) {
    TakeWhatWasLeft(allocation->address, EndOf(allocation->address, bytes), stream);
  }
  if (bytes > Bytes(0)) {
    live_[allocation->address] = {bytes, allocation->charged};
    live_bytes_ += bytes;
  }
  if (after_allocating_) {
    after_allocating_();
  }
  return Piece{TensorAt(allocation->address), bytes, allocation->handle, stream};
}

void TensorMemory::Free(const Piece& piece) {
  if (piece.bytes > Bytes(0)) {
    const auto begin = reinterpret_cast<std::uint64_t>(piece.data);
    if (poison_ == Poison::everything) {
      SetToNaN(piece.stream, piece.data, piece.bytes);
    }
    if (!allocator_->frees_in_stream_order()) {
      left_.emplace(begin, Left{EndOf(begin, piece.bytes), piece.stream});
    }
  }
  GiveBack(piece, piece.stream);
}

void TensorMemory::FreeInUse(const Piece& piece, std::vector<Device::Mark> uses) {
  if (allocator_->frees_in_stream_order()) {
    for (const Device::Mark mark : uses) {
      device_.WaitFor(kFreeingStream, mark);
    }
    GiveBack(piece, kFreeingStream);
    return;
  }
  if (piece.bytes > Bytes(0)) {
    const auto begin = reinterpret_cast<std::uint64_t>(piece.data);
    in_use_.emplace(begin, InUse{EndOf(begin, piece.bytes), std::move(uses)});
  }
  GiveBack(piece, piece.stream);
}

void TensorMemory::Synchronize() {
  in_use_.clear();
  allocator_->Synchronize();
}

void TensorMemory::GiveBack(const Piece& piece, std::uint32_t stream) {
  const auto begin = reinterpret_cast<std::uint64_t>(piece.data);
  if (annotations_ != nullptr && piece.bytes > Bytes(0)) {
    annotations_->RegionGoes(begin);
  }
  allocator_->FreeOn(piece.handle, stream);  // whoever looks at the device meanwhile finds the tensor there
  if (piece.bytes > Bytes(0)) {
    live_.erase(begin);
    live_bytes_ -= piece.bytes;
  }
  ForgetWhatTheDeviceTook();
}

/// A stretch keeps its ends that are not handed out.
void TensorMemory::WaitForUses(std::uint64_t begin, std::uint64_t end, std::uint32_t stream) {
  auto stretch = in_use_.upper_bound(begin);
  if (stretch != in_use_.begin()) {
    --stretch;
  }
  while (stretch != in_use_.end() && stretch->first < end) {
    if (stretch->second.end <= begin) {
      ++stretch;
      continue;
    }
    const std::uint64_t first = stretch->first;
    const InUse rest = std::move(stretch->second);
    for (const Device::Mark mark : rest.uses) {
      device_.WaitFor(stream, mark);
    }
    stretch = in_use_.erase(stretch);
    if (first < begin) {
      in_use_.emplace(first, InUse{begin, rest.uses});
    }
    if (end < rest.end) {
      in_use_.emplace(end, rest);
    }
  }
}

void TensorMemory::SetToNaN(std::uint32_t stream, void* at, Bytes bytes) { device_.Set(stream, kPoison, at, bytes); }

/// Makes [begin, end) belong to somebody: what lies between the stretches that were left is poisoned, if anything is.
/// Where another stream has still work with one of these, this one waits for it.
void TensorMemory::TakeWhatWasLeft(std::uint64_t begin, std::uint64_t end, std::uint32_t stream) {
  auto stretch = left_.upper_bound(begin);
  if (stretch != left_.begin()) {
    --stretch;
  }
  std::uint64_t at = begin;
  while (at < end) {
    while (stretch != left_.end() && stretch->second.end <= at) {
      ++stretch;
    }
    const std::uint64_t next = stretch == left_.end() ? end : std::min(stretch->first, end);
    if (at < next && poison_ == Poison::everything) {
      SetToNaN(stream, TensorAt(at), Bytes(static_cast<std::int64_t>(next - at)));
    }
    at = std::max(at, next);
    if (at == end || stretch == left_.end()) {
      return;
    }
    const auto [first, rest] = *stretch;
    if (rest.stream != stream) {
      device_.WaitFor(stream, device_.MarkIn(rest.stream));
    }
    stretch = left_.erase(stretch);
    if (first < at) {
      left_.emplace(first, Left{at, rest.stream});
    }
    if (end < rest.end) {
      left_.emplace(end, rest);
    }
    at = std::min(rest.end, end);
  }
}

/// Memory that the device takes back comes again as it likes.
void TensorMemory::ForgetWhatTheDeviceTook() {
  const std::int64_t given = allocator_->device().times_given();
  if (given != times_given_) {
    left_.clear();
    in_use_.clear();  // it has waited for them
    times_given_ = given;
  }
}

}  // namespace tidemark
