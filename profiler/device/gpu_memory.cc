// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_memory.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace tidemark {
namespace {

std::uint64_t Length(Bytes bytes) { return static_cast<std::uint64_t>(bytes.count()); }

/// The piece or range that an address may lie in.
template <class Map>
typename Map::const_iterator Below(const Map& map, std::uint64_t address) {
  const auto behind = map.upper_bound(address);
  return behind == map.begin() ? map.end() : std::prev(behind);
}

}  // namespace

GpuMemory::~GpuMemory() {
  for (const auto& [address, bytes] : pieces_) {
    driver_.Free(address);
  }
  while (!pages_.empty()) {
    UnmapPage(pages_.begin()->first, PageAt(pages_.begin()->first));
  }
  for (const auto& [address, range] : ranges_) {
    FreeAddressesOf(range);
  }
}

Bytes GpuMemory::RangeOf(Bytes page) const {
  return Bytes(RoundUp(std::max(capacity() * 16, page).count(), page.count()));
}

std::unique_ptr<DeviceMemory> GpuMemory::On(Bytes) const {
  Fail("memory that tensors lie in cannot be copied", __FILE__, __LINE__);
}

bool GpuMemory::Has(std::uint64_t address) const {
  const auto piece = Below(pieces_, address);
  const auto range = Below(ranges_, address);
  return (piece != pieces_.end() && address - piece->first < Length(piece->second)) ||
         (range != ranges_.end() && address - range->first < Length(range->second.bytes));
}

void GpuMemory::ForEachTaken(const std::function<void(std::uint64_t begin, std::uint64_t end)>& visit) const {
  for (const auto& [address, bytes] : pieces_) {
    visit(address, address + Length(bytes));
  }
  for (auto page = pages_.begin(); page != pages_.end();) {
    const std::uint64_t begin = page->first;
    std::uint64_t end = begin;
    for (; page != pages_.end() && page->first == end; ++page) {
      end += Length(PageAt(page->first));
    }
    visit(begin, end);
  }
}

std::optional<std::uint64_t> GpuMemory::DoTake(Bytes bytes) {
  const auto address = driver_.Allocate(bytes);
  if (address) {
    pieces_.emplace(*address, bytes);
  }
  return address;
}

void GpuMemory::DoGive(std::uint64_t address, Bytes bytes) {
  const auto piece = pieces_.find(address);
  TIDEMARK_CHECK(piece != pieces_.end() && piece->second == bytes);
  driver_.Free(address);
  pieces_.erase(piece);
}

std::optional<std::uint64_t> GpuMemory::DoReserve(Bytes page) {
  TIDEMARK_CHECK(page.count() % driver_.granularity().count() == 0);
  const Bytes bytes = RangeOf(page);
  const auto begin = driver_.ReserveAddresses(bytes + page);
  if (!begin) {
    return std::nullopt;
  }
  const std::uint64_t step = Length(page), address = (*begin + step - 1) / step * step;
  ranges_.emplace(address, Range{bytes, page, *begin});
  return address;
}

void GpuMemory::DoRelease(std::uint64_t address, Bytes) {
  const auto range = ranges_.find(address);
  TIDEMARK_CHECK(range != ranges_.end());
  const auto next = pages_.lower_bound(address);
  TIDEMARK_CHECK(next == pages_.end() || next->first >= address + Length(range->second.bytes));
  FreeAddressesOf(range->second);
  ranges_.erase(range);
}

bool GpuMemory::DoMap(std::uint64_t address, Bytes bytes) {
  const Bytes page = PageAt(address);
  TIDEMARK_CHECK(bytes.count() % page.count() == 0);
  const std::uint64_t end = address + Length(bytes);
  for (std::uint64_t at = address; at < end; at += Length(page)) {
    const auto handle = driver_.MakeMemory(page);
    if (!handle) {
      for (std::uint64_t mapped = address; mapped < at; mapped += Length(page)) {
        UnmapPage(mapped, page);
      }
      return false;
    }
    TIDEMARK_CHECK(pages_.emplace(at, *handle).second);
    driver_.Map(at, page, *handle);
  }
  driver_.Allow(address, bytes);
  return true;
}

void GpuMemory::DoUnmap(std::uint64_t address, Bytes bytes) {
  const Bytes page = PageAt(address);
  for (std::uint64_t at = address; at < address + Length(bytes); at += Length(page)) {
    UnmapPage(at, page);
  }
}

Bytes GpuMemory::PageAt(std::uint64_t address) const {
  const auto range = Below(ranges_, address);
  TIDEMARK_CHECK(range != ranges_.end() && address - range->first < Length(range->second.bytes));
  return range->second.page;
}

void GpuMemory::UnmapPage(std::uint64_t address, Bytes page) {
  const auto found = pages_.find(address);
  TIDEMARK_CHECK(found != pages_.end());
  driver_.Unmap(address, page);
  driver_.ReleaseMemory(found->second);
  pages_.erase(found);
}

}  // namespace tidemark
