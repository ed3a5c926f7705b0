// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_pool.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace tidemark {
namespace {

[[noreturn]] void RefuseToAct() { Fail("memory of a pool is the driver's to take and to give", __FILE__, __LINE__); }

}  // namespace

Result<std::unique_ptr<GpuPool>> GpuPool::Make(GpuDriver& driver, Bytes capacity, Bytes release_threshold) {
  const Bytes total = driver.totals().total;
  GpuDriver::PoolOptions options{.release_threshold = release_threshold};
  if (capacity < total) {
    options.largest = capacity;
  }
  TIDEMARK_ASSIGN(const std::uint64_t pool, driver.MakePool(options));
  return std::unique_ptr<GpuPool>(new GpuPool(driver, pool, std::min(capacity, total)));
}

GpuPool::~GpuPool() { driver_.DropPool(pool_); }

std::optional<std::uint64_t> GpuPool::Allocate(Bytes bytes, void* stream) {
  const auto address = driver_.AllocateFromPool(pool_, bytes, stream);
  Follow();
  if (!address) {
    return std::nullopt;
  }
  std::uint64_t begin = *address, end = begin + static_cast<std::uint64_t>(bytes.count());
  auto next = handed_out_.upper_bound(begin);
  if (next != handed_out_.begin() && std::prev(next)->second >= begin) {
    --next;
  }
  while (next != handed_out_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = handed_out_.erase(next);
  }
  handed_out_.emplace(begin, end);
  return address;
}

void GpuPool::Trim() {
  driver_.TrimPool(pool_, Bytes());
  Follow();
}

/// Between two looks it may have had more than at either: the driver's mark says so.
void GpuPool::Follow() {
  const GpuDriver::PoolUse now = use();
  const Bytes most = now.reserved_peak > highest() ? now.reserved_peak : now.reserved;
  if (most > taken()) {
    CountTaken(most - taken());
  }
  if (now.reserved < taken()) {
    CountGiven(taken() - now.reserved);
  }
}

bool GpuPool::Has(std::uint64_t address) const {
  const auto behind = handed_out_.upper_bound(address);
  return behind != handed_out_.begin() && address < std::prev(behind)->second;
}

std::unique_ptr<DeviceMemory> GpuPool::On(Bytes) const {
  Fail("memory that tensors lie in cannot be copied", __FILE__, __LINE__);
}

std::optional<std::uint64_t> GpuPool::DoTake(Bytes) { RefuseToAct(); }
void GpuPool::DoGive(std::uint64_t, Bytes) { RefuseToAct(); }
std::optional<std::uint64_t> GpuPool::DoReserve(Bytes) { RefuseToAct(); }
void GpuPool::DoRelease(std::uint64_t, Bytes) { RefuseToAct(); }
bool GpuPool::DoMap(std::uint64_t, Bytes) { RefuseToAct(); }
void GpuPool::DoUnmap(std::uint64_t, Bytes) { RefuseToAct(); }

}  // namespace tidemark
