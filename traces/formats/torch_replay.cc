// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_replay.h"

#include <algorithm>

namespace tidemark {
namespace {

using Action = TorchEntry::Action;

constexpr std::uint64_t kHighest = std::uint64_t{1}
                                   << 51U;  // with the spare ones, 2^53: a viewer's largest exact number
constexpr std::uint64_t kPage = std::uint64_t{1} << 21U;
constexpr std::uint64_t kOwnRegion = std::uint64_t{1} << 42U;  // of addresses, for each stream
constexpr std::uint16_t kOwnRegions = 1000;
constexpr std::int64_t kMostReserved = std::int64_t{1} << 50;

/// Beyond every block of the trace.
std::uint64_t SpareAddress(const AddressRanges& ranges, TorchReplay::Addresses addresses) {
  return addresses == TorchReplay::Addresses::own
             ? kOwnRegion * (kOwnRegions + 1)
             : (std::min(ranges.highest(), kHighest) / kPage + (std::uint64_t{1} << 30U)) *
                   kPage;  // 2 PiB further, for the last block
}

std::vector<std::uint64_t> AddressesOf(const Trace& trace) {
  std::vector<std::uint64_t> addresses;
  for (const MemoryEvent& event : trace.memory) {
    addresses.push_back(event.address);
  }
  return addresses;
}

std::uint16_t StreamOf(const MemoryEvent& event) { return event.stream == kNoStream ? 0 : event.stream; }

}  // namespace

TorchReplay::TorchReplay(const Trace& trace, Addresses addresses)
    : trace_(trace),
      addresses_(addresses),
      ranges_(AddressesOf(trace), kHighest),
      segments_(SpareAddress(ranges_, addresses), addresses == Addresses::of_trace_in_ranges) {
  address_of_.resize(trace.tensors.size());
  for (const InstantMark& mark : trace.marks) {
    if (mark.name == kOutOfMemory) {
      refused_after_.insert(mark.events);
    }
  }
}

TorchReplay::Addresses TorchReplay::ServingAddresses(const Trace& trace) {
  for (const Addresses addresses : {Addresses::of_trace, Addresses::of_trace_in_ranges}) {
    if (TorchReplay(trace, addresses).Run([](const TorchStep&) {})) {
      return addresses;
    }
  }
  return Addresses::own;
}

bool TorchReplay::Run(const std::function<void(const TorchStep&)>& emit) {
  emit_ = &emit;
  for (std::size_t i = 0; i < trace_.memory.size(); ++i) {
    const MemoryEvent& event = trace_.memory[i];
    if (trace_.tensors[event.tensor.index].bytes == Bytes(0)) {
      continue;
    }
    CompleteUntil(event.issue);
    if (!event.alloc) {
      Free(i);
    } else if (!Alloc(i)) {
      return false;
    }
    EmitRefused(i);
  }
  return true;
}

/// What was refused right after an event. How much that asked for is not known.
void TorchReplay::EmitRefused(std::size_t index) {
  for (std::size_t left = refused_after_.count(index + 1); left > 0; --left) {
    TorchStep step;
    step.action = Action::oom;
    step.time_us = trace_.memory[index].issue.count() / 1000;
    step.event = index;
    (*emit_)(step);
  }
}

/// What the allocator's total grew by; the request where that is not known.
std::int64_t TorchReplay::BlockBytes(std::size_t index) const {
  constexpr std::int64_t kMostRounding = std::int64_t{1} << 30;
  const std::int64_t before = index == 0 ? 0 : trace_.memory[index - 1].allocator_bytes.count();
  const std::int64_t request = trace_.tensors[trace_.memory[index].tensor.index].bytes.count();
  std::int64_t grown = 0;
  const bool known = !__builtin_sub_overflow(trace_.memory[index].allocator_bytes.count(), before, &grown) &&
                     grown >= request && grown - request <= kMostRounding;
  return known ? grown : request;
}

/// What the trace says, but never less than what is alive.
std::int64_t TorchReplay::ReservedAfter(std::size_t index) const {
  const std::int64_t told = trace_.memory[index].reserved_bytes.count();
  if (told <= 0 || told > kMostReserved) {
    return std::max(segments_.reserved(), n_live_);
  }
  return std::max(told, n_live_);
}

std::uint64_t TorchReplay::OwnAddress(std::uint16_t stream, std::int64_t n_bytes) {
  constexpr std::uint64_t kStep = 512;
  std::vector<std::uint64_t>& freed = freed_own_[{stream, n_bytes}];
  if (!freed.empty()) {
    const std::uint64_t address = freed.back();
    freed.pop_back();
    return address;
  }
  const auto [next, is_new] = next_own_.try_emplace(stream, kOwnRegion * (stream + 1U));
  const std::uint64_t address = next->second;
  if (static_cast<std::uint64_t>(n_bytes) + address + kPage > kOwnRegion * (stream + 2U)) {
    return 0;
  }
  next->second = (address + static_cast<std::uint64_t>(n_bytes) + kStep - 1) / kStep * kStep;
  return address;
}

bool TorchReplay::Alloc(std::size_t index) {
  const MemoryEvent& event = trace_.memory[index];
  const std::int64_t n_bytes = BlockBytes(index);
  const std::uint16_t stream = std::min<std::uint16_t>(StreamOf(event), kOwnRegions - 1);
  const std::uint64_t address =
      addresses_ == Addresses::own ? OwnAddress(stream, n_bytes) : ranges_.Moved(event.address);
  if (address == 0 || address > kHighest || static_cast<std::uint64_t>(n_bytes) > kOwnRegion) {
    return false;
  }
  CompleteAt(address, event.issue);
  n_live_ += n_bytes;
  // What goes in the very microsecond of a free would seem to be given back by it: there, it goes after what comes.
  const std::int64_t time_us = event.issue.count() / 1000;
  if (index == 0 || trace_.memory[index - 1].alloc || trace_.memory[index - 1].issue.count() / 1000 < time_us) {
    segments_.MakeRoom(address, n_bytes, ReservedAfter(index), changes_);
  }
  if (n_live_ > kMostReserved || !segments_.Alloc(address, n_bytes, stream, ReservedAfter(index), changes_)) {
    return false;
  }
  EmitChanges(time_us);
  live_[address] = {n_bytes, index, false};
  address_of_[event.tensor.index][{event.index0, event.index1}] = address;
  Emit(Action::alloc, address, event.issue, index);
  return true;
}

void TorchReplay::Free(std::size_t index) {
  const MemoryEvent& event = trace_.memory[index];
  auto& members = address_of_[event.tensor.index];
  const auto member = members.find({event.index0, event.index1});
  const std::uint64_t address = member->second;
  members.erase(member);
  if (!event.waits) {
    n_live_ -= live_[address].n_bytes;
  }
  const std::int64_t reserved = ReservedAfter(index);
  if (reserved > segments_.reserved()) {
    segments_.Reserve(reserved, changes_);
    EmitChanges(event.issue.count() / 1000);
  }
  Emit(Action::free_requested, address, event.issue, index);
  if (event.waits) {
    const Nanos ready = std::max(event.ready, event.issue);
    waiting_.emplace(ready, address);
    waits_at_[address] = {ready, index};
    live_[address].pending = true;
  } else {
    Emit(Action::free_completed, address, event.issue, index);
    segments_.Free(address);
    if (addresses_ == Addresses::own) {
      freed_own_[{std::min<std::uint16_t>(StreamOf(event), kOwnRegions - 1), live_[address].n_bytes}].push_back(
          address);
    }
    live_.erase(address);
  }
  segments_.Reserve(reserved, changes_);
  EmitChanges(event.issue.count() / 1000);
}

void TorchReplay::CompleteUntil(Nanos time) {
  while (!waiting_.empty() && waiting_.begin()->first <= time) {
    Complete(waiting_.begin(), waiting_.begin()->first);
  }
}

/// Somebody gets the block: it is completed, whatever `ready` says.
void TorchReplay::CompleteAt(std::uint64_t address, Nanos time) {
  if (const auto found = waits_at_.find(address); found != waits_at_.end()) {
    Complete(waiting_.find({found->second.first, address}), time);
  }
}

void TorchReplay::Complete(std::set<std::pair<Nanos, std::uint64_t>>::iterator waiting, Nanos time) {
  const std::uint64_t address = waiting->second;
  const std::size_t event = waits_at_[address].second;
  waiting_.erase(waiting);
  waits_at_.erase(address);
  Emit(Action::free_completed, address, time, event);
  const Live block = live_[address];
  n_live_ -= block.n_bytes;
  segments_.Free(address);
  if (addresses_ == Addresses::own) {
    const std::uint16_t stream = StreamOf(trace_.memory[event]);
    freed_own_[{std::min<std::uint16_t>(stream, kOwnRegions - 1), block.n_bytes}].push_back(address);
  }
  live_.erase(address);
}

void TorchReplay::EmitChanges(std::int64_t time_us) {
  using Change = TorchSegmentChange::Kind;
  for (const TorchSegmentChange& change : changes_) {
    TorchStep step;
    step.action = change.kind == Change::alloc  ? Action::segment_alloc
                  : change.kind == Change::free ? Action::segment_free
                  : change.kind == Change::map  ? Action::segment_map
                                                : Action::segment_unmap;
    step.address = change.address;
    step.n_bytes = change.n_bytes;
    step.stream = change.stream;
    step.time_us = time_us;
    (*emit_)(step);
  }
  changes_.clear();
}

void TorchReplay::Emit(Action action, std::uint64_t address, Nanos time, std::size_t event) {
  TorchStep step;
  step.action = action;
  step.address = address;
  step.n_bytes = trace_.tensors[trace_.memory[event].tensor.index].bytes.count();
  step.stream = StreamOf(trace_.memory[event]);
  step.time_us = time.count() / 1000;
  step.event = event;
  (*emit_)(step);
}

}  // namespace tidemark
