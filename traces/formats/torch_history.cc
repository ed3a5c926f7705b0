// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_history.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tidemark {
namespace {

using Action = TorchEntry::Action;

/// What c10/cuda/CUDACachingAllocator.cpp makes of a request: multiples of 512 bytes, at least one. Whether the block
/// was larger, since its rest was not worth a block of its own, only the snapshot's blocks tell.
std::int64_t RoundedRequest(std::int64_t n_bytes) {
  constexpr std::int64_t kStep = 512;
  return std::max(kStep, (n_bytes + kStep - 1) / kStep * kStep);
}

class Follower {
 public:
  Follower(const TorchSnapshot& snapshot, std::size_t device) : snapshot_(snapshot), device_(device) {}

  Result<TorchHistory> Follow() {
    const std::vector<std::uint32_t> none;
    const std::vector<std::uint32_t>& rows = device_ < snapshot_.traces.size() ? snapshot_.traces[device_] : none;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const TorchEntry& entry = snapshot_.entries[rows[i]];
      now_us_ = TimeOf(entry, i);
      if (i == 0) {
        history_.first_us = now_us_;
      }
      entry_ = i;
      Play(entry);
      if (lost_) {
        return BadInput("the snapshot's segments add up to more than 2^60 bytes");
      }
    }
    history_.last_us = now_us_;
    TIDEMARK_TRY(PlayEnd());
    return std::move(history_);
  }

 private:
  /// Times never run backwards; without any, entries follow each other by a microsecond.
  std::int64_t TimeOf(const TorchEntry& entry, std::size_t index) const {
    if (!snapshot_.has_times) {
      return static_cast<std::int64_t>(index);
    }
    return index == 0 ? entry.time_us : std::max(now_us_, entry.time_us);
  }

  void Play(const TorchEntry& entry) {
    switch (entry.action) {
      case Action::alloc:
        return Allocate(entry);
      case Action::free_requested:
        return Free(entry);
      case Action::free_completed:
        return Complete(entry);
      case Action::segment_alloc:
      case Action::segment_map:
        return Reserve(entry.n_bytes);
      case Action::segment_free:
      case Action::segment_unmap:
        return Reserve(-entry.n_bytes);
      case Action::oom:
        return history_.out_of_memory.push_back(history_.moments.size());
      case Action::other:
        return;
    }
  }

  void Allocate(const TorchEntry& entry) {
    if (const auto found = live_.find(entry.address); found != live_.end()) {
      AddMoment(false, found->second);  // its free is missing
      live_.erase(found);
    }
    pending_.erase(entry.address);
    const std::uint32_t life = AddLife(entry, false);
    history_.lives[life].place = entry.place;
    live_[entry.address] = life;
    AddMoment(true, life);
  }

  void Free(const TorchEntry& entry) {
    const auto found = live_.find(entry.address);
    std::uint32_t life = 0;
    if (found == live_.end()) {
      life = AddLife(entry, true);
    } else {
      life = found->second;
      live_.erase(found);
    }
    pending_[entry.address] = {history_.moments.size(), entry_};
    AddMoment(false, life);
    history_.moments.back().waits = true;
  }

  void Complete(const TorchEntry& entry) {
    const auto found = pending_.find(entry.address);
    if (found == pending_.end()) {
      return;  // it was requested before the recording
    }
    // The allocator holds one lock over both entries where no other stream uses the block: they lie a microsecond apart
    // at most. Else the second one comes with a later allocation.
    TorchMoment& moment = history_.moments[found->second.moment];
    std::int64_t apart = 0;
    const bool beyond = __builtin_sub_overflow(now_us_, moment.time_us, &apart);
    moment.waits = entry_ != found->second.entry + 1 || (snapshot_.has_times && (beyond || apart > 1));
    moment.ready_us = moment.waits ? now_us_ : moment.time_us;
    latest_free_us_ = now_us_;
    pending_.erase(found);
  }

  /// What is given back within the microsecond of a free, before anything is taken, belongs to that free.
  void Reserve(std::int64_t change) {
    lost_ = lost_ || __builtin_add_overflow(reserved_, change, &reserved_) || reserved_ > kMostTorchBytes ||
            reserved_ < -kMostTorchBytes;
    lowest_ = std::min(lowest_, reserved_);
    taken_ = taken_ || change > 0;
    if (!taken_ && !history_.moments.empty() && !history_.moments.back().alloc &&
        (history_.moments.back().time_us == now_us_ || latest_free_us_ == now_us_)) {
      history_.moments.back().n_reserved = reserved_;
    }
  }

  std::uint32_t AddLife(const TorchEntry& entry, bool before) {
    TorchLife life;
    life.n_requested = entry.n_bytes;
    life.n_block = RoundedRequest(entry.n_bytes);
    life.address = entry.address;
    life.stream = entry.stream;
    life.category = entry.category;
    life.dtype = entry.dtype;
    life.before = before;
    history_.lives.push_back(life);
    return static_cast<std::uint32_t>(history_.lives.size() - 1);
  }

  void AddMoment(bool alloc, std::uint32_t life) {
    TorchMoment moment;
    moment.alloc = alloc;
    moment.life = life;
    moment.time_us = moment.ready_us = now_us_;
    moment.n_reserved = reserved_;
    history_.moments.push_back(moment);
    taken_ = false;
  }

  /// The state at the end: sizes of what is still alive, what was alive all the time, and what was reserved.
  Status PlayEnd() {
    std::int64_t reserved_at_end = 0;
    for (const TorchSegment& segment : snapshot_.segments) {
      if (segment.device != static_cast<std::int64_t>(device_)) {
        continue;
      }
      reserved_at_end += segment.n_bytes;  // fewer than 2^60 each
      if (reserved_at_end > kMostTorchBytes) {
        return BadInput("the snapshot's segments add up to more than 2^60 bytes");
      }
      for (std::uint32_t i = 0; i < segment.blocks; ++i) {
        MeetBlock(snapshot_.blocks[segment.first_block + i], segment);
      }
    }
    for (const auto& [address, waiting] : pending_) {
      history_.moments[waiting.moment].ready_us = now_us_;
    }
    // Where segments and entries contradict each other, no total is negative.
    history_.n_reserved_before = std::max(reserved_at_end - reserved_, -lowest_);
    for (TorchMoment& moment : history_.moments) {
      moment.n_reserved += history_.n_reserved_before;
    }
    return Done{};
  }

  void MeetBlock(const TorchBlock& block, const TorchSegment& segment) {
    if (block.state != TorchBlock::State::allocated) {
      return;
    }
    if (const auto found = live_.find(block.address); found != live_.end()) {
      TorchLife& life = history_.lives[found->second];
      life.n_block = std::max(block.n_bytes, life.n_requested);
      return;
    }
    TorchLife life;
    life.n_requested = block.n_requested;
    life.n_block = std::max(block.n_bytes, block.n_requested);
    life.address = block.address;
    life.place = block.place;
    life.stream = segment.stream;
    life.before = true;
    history_.lives.push_back(life);
    live_[block.address] = static_cast<std::uint32_t>(history_.lives.size() - 1);
  }

  struct Waiting {
    std::size_t moment = 0, entry = 0;
  };

  const TorchSnapshot& snapshot_;
  std::size_t device_;
  TorchHistory history_;
  std::map<std::uint64_t, std::uint32_t> live_;  // by address; ordered, since hostile keys make a hash table slow
  std::map<std::uint64_t, Waiting> pending_;     // freed, and not yet completed
  std::size_t entry_ = 0;
  std::int64_t now_us_ = 0, latest_free_us_ = 0;
  std::int64_t reserved_ = 0, lowest_ = 0;  // relative to the beginning
  bool taken_ = false;                      // memory from the device, since the last moment
  bool lost_ = false;
};

}  // namespace

Result<TorchHistory> FollowDevice(const TorchSnapshot& snapshot, std::size_t device) {
  return Follower(snapshot, device).Follow();
}

}  // namespace tidemark
