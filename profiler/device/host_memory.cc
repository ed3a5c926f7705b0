// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"

namespace tidemark {
namespace {

void* Pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): an allocator counts in addresses
}

std::uint64_t InSystemPages(std::uint64_t bytes) {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::optional<std::uint64_t> NewMapping(std::uint64_t length, int access, int flags) {
  void* begin = mmap(nullptr, length, access, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return begin == MAP_FAILED ? std::nullopt : std::optional(reinterpret_cast<std::uint64_t>(begin));
}

}  // namespace

HostMemory::~HostMemory() {
  for (const auto* mappings : {&pieces_, &ranges_}) {
    for (const auto& [address, mapping] : *mappings) {
      munmap(Pointer(mapping.begin), mapping.length);
    }
  }
}

Bytes HostMemory::RangeOf(Bytes page) const {
  constexpr Bytes kMost = Bytes(std::int64_t{1} << 40);  // a program under the thread sanitizer has room for one
  const Bytes wanted = capacity() > kMost / 64 ? kMost : capacity() * 64;
  return Bytes(RoundUp(std::max(wanted, page).count(), page.count()));
}

std::unique_ptr<DeviceMemory> HostMemory::On(Bytes) const {
  Fail("memory that tensors lie in cannot be copied", __FILE__, __LINE__);
}

std::optional<std::uint64_t> HostMemory::DoTake(Bytes bytes) {
  const std::uint64_t length = InSystemPages(static_cast<std::uint64_t>(bytes.count()));
  const auto address = NewMapping(length, PROT_READ | PROT_WRITE, 0);
  if (address) {
    pieces_.emplace(*address, Mapping{*address, length});
    Add(length);
  }
  return address;
}

void HostMemory::ForEachMapped(const std::function<void(std::uint64_t begin, std::uint64_t end)>& visit) const {
  for (const auto& [address, piece] : pieces_) {
    visit(piece.begin, piece.begin + piece.length);
  }
  for (const auto& [begin, end] : pages_) {
    visit(begin, end);
  }
}

void HostMemory::DoGive(std::uint64_t address, Bytes bytes) {
  LookBeforeGiving();
  const auto piece = pieces_.find(address);
  TIDEMARK_CHECK(piece != pieces_.end() &&
                 piece->second.length == InSystemPages(static_cast<std::uint64_t>(bytes.count())));
  TIDEMARK_CHECK(munmap(Pointer(address), piece->second.length) == 0);
  mapped_ -= Bytes(static_cast<std::int64_t>(piece->second.length));
  pieces_.erase(piece);
}

std::optional<std::uint64_t> HostMemory::DoReserve(Bytes page) {
  const auto step = static_cast<std::uint64_t>(page.count());
  const std::uint64_t length = static_cast<std::uint64_t>(RangeOf(page).count()) + step;
  const auto begin = NewMapping(length, PROT_NONE, MAP_NORESERVE);
  if (!begin) {
    return std::nullopt;
  }
  const std::uint64_t address = (*begin + step - 1) / step * step;
  ranges_.emplace(address, Mapping{*begin, length});
  return address;
}

void HostMemory::DoRelease(std::uint64_t address, Bytes) {
  const auto range = ranges_.find(address);
  TIDEMARK_CHECK(range != ranges_.end());
  const auto next = pages_.lower_bound(address);
  TIDEMARK_CHECK(next == pages_.end() || next->first >= range->second.begin + range->second.length);
  TIDEMARK_CHECK(munmap(Pointer(range->second.begin), range->second.length) == 0);
  ranges_.erase(range);
}

bool HostMemory::DoMap(std::uint64_t address, Bytes bytes) {
  const std::uint64_t end = address + static_cast<std::uint64_t>(bytes.count());
  const auto next = pages_.lower_bound(address);
  TIDEMARK_CHECK(next == pages_.end() || next->first >= end);
  TIDEMARK_CHECK(next == pages_.begin() || std::prev(next)->second <= address);
  if (mprotect(Pointer(address), end - address, PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  pages_.emplace(address, end);
  Add(end - address);
  return true;
}

/// A fresh mapping without access in its place gives the memory back to the system.
void HostMemory::DoUnmap(std::uint64_t address, Bytes bytes) {
  LookBeforeGiving();
  const std::uint64_t end = address + static_cast<std::uint64_t>(bytes.count());
  std::uint64_t at = address;
  auto stretch = pages_.upper_bound(address);
  TIDEMARK_CHECK(stretch != pages_.begin());
  for (--stretch; at < end;) {
    TIDEMARK_CHECK(stretch != pages_.end() && stretch->first <= at && at < stretch->second);
    const auto [begin, stretch_end] = *stretch;
    stretch = pages_.erase(stretch);
    if (begin < at) {
      pages_.emplace(begin, at);
    }
    if (end < stretch_end) {
      pages_.emplace(end, stretch_end);
    }
    at = std::min(end, stretch_end);
  }
  void* unmapped =
      mmap(Pointer(address), end - address, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  TIDEMARK_CHECK(unmapped == Pointer(address));
  mapped_ -= bytes;
}

void HostMemory::LookBeforeGiving() const {
  if (before_giving_) {
    before_giving_();
  }
}

void HostMemory::Add(std::uint64_t bytes) {
  mapped_ += Bytes(static_cast<std::int64_t>(bytes));
  mapped_peak_ = std::max(mapped_peak_, mapped_);
}

}  // namespace tidemark
