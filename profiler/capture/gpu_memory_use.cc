// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_memory_use.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace tidemark {
namespace {

std::string_view OwnerBySource(std::string_view path) {
  struct Library {
    std::string_view name, owner;
  };
  static constexpr std::array kLibraries = {Library{"libnccl", kNccl}, Library{"libcublas", kCublas},
                                            Library{"libcudnn", kCudnn}, Library{"libcupti", kCupti}};
  const std::size_t slash = path.rfind('/');
  const std::string_view file = path.substr(slash == std::string_view::npos ? 0 : slash + 1);
  for (const Library& library : kLibraries) {
    if (file.starts_with(library.name)) {
      return library.owner;
    }
  }
  return kOtherOwner;
}

/// One change of what somebody has.
struct Change {
  Nanos at;
  std::string_view owner;
  Bytes by;  ///< negative: less
};

class Follower {
 public:
  Follower(const GpuRecords& records, const IsOurs& ours) : records_(records), ours_(ours) {}

  GpuMemoryUse Run() {
    FollowPhysicalMemory();
    FollowAllocations();
    // What went at an instant went before what came: an allocator gives back first.
    std::stable_sort(changes_.begin(), changes_.end(),
                     [](const Change& a, const Change& b) { return std::tie(a.at, a.by) < std::tie(b.at, b.by); });
    return Sum();
  }

 private:
  struct Mapping {
    std::uint64_t end = 0;
    Nanos from, until;
  };
  static constexpr Nanos kForever{INT64_MAX};

  void FollowPhysicalMemory() {
    std::set<std::uint64_t> ours;
    for (const GpuVirtualMemoryRecord& record : records_.virtual_memory) {
      if (record.call == GpuVirtualMemoryRecord::Call::map && ours_(record.address)) {
        ours.insert(record.handle);
      }
    }
    std::map<std::uint64_t, std::pair<std::string_view, Bytes>> made;
    for (const GpuVirtualMemoryRecord& record : records_.virtual_memory) {
      switch (record.call) {
        case GpuVirtualMemoryRecord::Call::create:
          made[record.handle] = {ours.count(record.handle) > 0 ? kTensorOwner : OwnerBySource(record.source),
                                 record.bytes};
          changes_.push_back({record.at, made[record.handle].first, record.bytes});
          break;
        case GpuVirtualMemoryRecord::Call::release:
          if (const auto found = made.find(record.handle); found != made.end()) {
            changes_.push_back({record.at, found->second.first, Bytes() - found->second.second});
            made.erase(found);
          }
          break;
        case GpuVirtualMemoryRecord::Call::map:
          mapped_[record.address] = {record.address + static_cast<std::uint64_t>(record.bytes.count()), record.at,
                                     kForever};
          break;
        case GpuVirtualMemoryRecord::Call::unmap:
          if (const auto found = mapped_.find(record.address); found != mapped_.end()) {
            found->second.until = record.at;
          }
          break;
      }
    }
  }

  bool IsMapped(std::uint64_t address, Nanos at) const {
    const auto behind = mapped_.upper_bound(address);
    if (behind == mapped_.begin()) {
      return false;
    }
    const Mapping& mapping = std::prev(behind)->second;
    return address < mapping.end && mapping.from <= at && at <= mapping.until;
  }

  void FollowAllocations() {
    std::map<std::uint64_t, std::pair<std::string_view, Bytes>> live;
    std::map<std::uint64_t, std::pair<std::string_view, Bytes>> pools;
    for (const GpuMemoryRecord& record : records_.memory) {
      if (record.kind != GpuMemoryRecord::Kind::device) {
        continue;
      }
      if (record.from_pool) {
        if (record.bytes == Bytes() && pools.count(record.pool) == 0) {
          continue;  // nobody has used it since the records begin
        }
        const std::string_view user = ours_(record.address) ? kTensorOwner : OwnerBySource(record.source);
        auto& [owner, bytes] = pools.emplace(record.pool, std::pair(user, Bytes())).first->second;
        changes_.push_back({record.at, owner, record.pool_bytes - bytes});
        bytes = record.pool_bytes;
        continue;
      }
      if (IsMapped(record.address, record.at)) {
        recorded_twice_ += record.alloc ? 1 : 0;
        continue;
      }
      if (record.alloc) {
        const std::string_view owner = ours_(record.address) ? kTensorOwner : OwnerBySource(record.source);
        live[record.address] = {owner, record.bytes};
        changes_.push_back({record.at, owner, record.bytes});
      } else if (const auto found = live.find(record.address); found != live.end()) {
        changes_.push_back({record.at, found->second.first, Bytes() - found->second.second});
        live.erase(found);
      }
    }
  }

  GpuMemoryUse Sum() const {
    GpuMemoryUse use;
    use.recorded_twice = recorded_twice_;
    std::map<std::string_view, GpuOwner> owners;
    std::map<std::string_view, Bytes> now;
    Bytes total;
    for (const Change& change : changes_) {
      Bytes& own = now[change.owner];
      own += change.by;
      total += change.by;
      GpuOwner& owner = owners[change.owner];
      owner.peak = std::max(owner.peak, own);
      if (total > use.peak) {
        use.peak = total;
        use.at = change.at;
        for (const auto& [name, bytes] : now) {
          owners[name].at_peak = bytes;
        }
      }
    }
    for (auto& [name, owner] : owners) {
      owner.name = name;
      owner.at_end = now[name];
      use.owners.push_back(owner);
    }
    std::stable_sort(use.owners.begin(), use.owners.end(),
                     [](const GpuOwner& a, const GpuOwner& b) { return a.at_peak > b.at_peak; });
    return use;
  }

  const GpuRecords& records_;
  const IsOurs& ours_;
  std::vector<Change> changes_;
  std::map<std::uint64_t, Mapping> mapped_;  ///< by address, the last that was there
  std::int64_t recorded_twice_ = 0;
};

}  // namespace

Bytes GpuMemoryUse::AtEnd(std::string_view owner) const {
  const auto found = std::find_if(owners.begin(), owners.end(), [&](const GpuOwner& one) { return one.name == owner; });
  return found == owners.end() ? Bytes() : found->at_end;
}

GpuMemoryUse FollowGpuMemory(const GpuRecords& records, const IsOurs& ours) { return Follower(records, ours).Run(); }

}  // namespace tidemark
