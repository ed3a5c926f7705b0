// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "traces/formats/address_ranges.h"
#include "traces/formats/torch_segments.h"
#include "traces/formats/torch_snapshot.h"
#include "traces/trace.h"

namespace tidemark {

/// One entry to be written.
struct TorchStep {
  TorchEntry::Action action = TorchEntry::Action::other;
  std::uint64_t address = 0;
  std::int64_t n_bytes = 0;
  std::uint16_t stream = 0;
  std::int64_t time_us = 0;
  std::size_t event = 0;  ///< of alloc and free_*: the memory event that it comes from; of oom: the one before it
};

/// Plays a trace as PyTorch's allocator would have recorded it. Requests of no bytes, which that never sees, are left
/// out; a free that waits is completed before the first event at or after its `ready`, and else is still pending at the
/// end.
class TorchReplay {
 public:
  enum class Addresses : std::uint8_t {
    of_trace,            ///< as the events tell them, or those that are far apart moved together (see AddressRanges)
    of_trace_in_ranges,  ///< the same, where memory that touches is one segment (TorchSegments::joined)
    own,                 ///< every block lies by itself; the next of its size and stream lies where one was freed
  };
  /// The first of these that serves.
  static Addresses ServingAddresses(const Trace& trace);

  TorchReplay(const Trace& trace, Addresses addresses);

  /// Hands out the steps in order. False where the addresses do not serve: unknown, too many too far apart for a
  /// viewer's numbers (2^51), or of blocks that lie over each other.
  bool Run(const std::function<void(const TorchStep&)>& emit);

  /// A block that nobody else can get at the end.
  struct Live {
    std::int64_t n_bytes = 0;
    std::size_t event = 0;  ///< its allocation
    bool pending = false;   ///< freed, but other streams use it still
  };
  const TorchSegments& segments() const { return segments_; }
  const std::map<std::uint64_t, Live>& live() const { return live_; }

 private:
  bool Alloc(std::size_t index);
  void Free(std::size_t index);
  void CompleteUntil(Nanos time);
  void Complete(std::set<std::pair<Nanos, std::uint64_t>>::iterator waiting, Nanos time);
  void CompleteAt(std::uint64_t address, Nanos time);
  void EmitChanges(std::int64_t time_us);
  void EmitRefused(std::size_t index);
  void Emit(TorchEntry::Action action, std::uint64_t address, Nanos time, std::size_t event);
  std::uint64_t OwnAddress(std::uint16_t stream, std::int64_t n_bytes);
  std::int64_t BlockBytes(std::size_t index) const;
  std::int64_t ReservedAfter(std::size_t index) const;

  const Trace& trace_;
  Addresses addresses_;
  AddressRanges ranges_;
  const std::function<void(const TorchStep&)>* emit_ = nullptr;
  TorchSegments segments_;
  std::vector<TorchSegmentChange> changes_;
  std::map<std::uint64_t, Live> live_;  // those that wait are alive as well
  std::vector<std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t>> address_of_;  // by tensor and member
  std::set<std::pair<Nanos, std::uint64_t>> waiting_;                                       // completed when, where
  std::map<std::uint64_t, std::pair<Nanos, std::size_t>> waits_at_;                         // where: when, which free
  std::map<std::uint16_t, std::uint64_t> next_own_;                                         // by stream
  std::map<std::pair<std::uint16_t, std::int64_t>, std::vector<std::uint64_t>> freed_own_;  // by stream and size
  std::multiset<std::uint64_t> refused_after_;                                              // so many events
  std::int64_t n_live_ = 0;
};

}  // namespace tidemark
