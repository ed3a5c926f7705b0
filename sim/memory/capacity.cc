// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/capacity.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "sim/memory/allocator.h"

namespace tidemark {
namespace {

constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());

/// An allocator at some place of a log, with what it gave to the requests before it.
class Playback {
 public:
  explicit Playback(std::unique_ptr<Allocator> allocator) : allocator_(std::move(allocator)) {}
  Playback(const Playback& other, Bytes capacity)
      : allocator_(other.allocator_->CopyOn(capacity)), handles_(other.handles_), at_(other.at_) {}

  /// Plays on to request `end`, or to the first one before it that is refused.
  void Play(std::span<const Request> log, std::size_t end) {
    for (; at_ < end && outcome_.succeeded(); ++at_) {
      const Request& request = log[at_];
      if (request.after_sync) {
        allocator_->Synchronize();
      }
      if (!request.alloc) {
        allocator_->Free(handles_.at(request.id));
        continue;
      }
      if (handles_.size() <= request.id) {
        handles_.resize(request.id + std::size_t{1});
      }
      const std::optional<Allocation> given = allocator_->Allocate(request.bytes, request.stream);
      if (!first_refusal_ && allocator_->device().enough_for_next()) {
        first_refusal_ = at_;
      }
      if (given) {
        handles_[request.id] = given->handle;
      } else {
        outcome_.kind = Outcome::Kind::out_of_memory;
        outcome_.failed_request = at_;
        outcome_.failed_bytes = request.bytes;
      }
    }
  }

  Outcome outcome() const {
    Outcome outcome = outcome_;
    outcome.cache_flushes = allocator_->cache_flushes();
    if (outcome.succeeded() && outcome.cache_flushes > 0) {
      outcome.kind = Outcome::Kind::flushed;
    }
    outcome.allocated_peak = allocator_->allocated_peak();
    outcome.reserved_peak = allocator_->reserved_peak();
    return outcome;
  }

  bool succeeded() const { return outcome_.succeeded(); }
  /// The first request for which the device refused, whether or not a flush helped.
  std::optional<std::size_t> first_refusal() const { return first_refusal_; }
  std::optional<Bytes> enough_for_next() const { return allocator_->device().enough_for_next(); }

 private:
  std::unique_ptr<Allocator> allocator_;
  std::vector<std::uint32_t> handles_;  // by request id
  std::size_t at_ = 0;
  std::optional<std::size_t> first_refusal_;
  Outcome outcome_;
};

/// Highest sum of live requests: no capacity below it can do.
Bytes LiveBytesPeak(std::span<const Request> log) {
  std::vector<Bytes> live;  // by request id
  Bytes sum, peak;
  for (const Request& request : log) {
    if (!request.alloc) {
      sum -= live[request.id];
      continue;
    }
    if (live.size() <= request.id) {
      live.resize(request.id + std::size_t{1});
    }
    live[request.id] = request.bytes;
    sum += request.bytes;
    peak = std::max(peak, sum);
  }
  return peak;
}

}  // namespace

Outcome Replay(std::span<const Request> log, const AllocatorOptions& options, std::unique_ptr<DeviceMemory> device) {
  Playback playback(MakeAllocator(options, std::move(device)));
  playback.Play(log, log.size());
  return playback.outcome();
}

Outcome Replay(std::span<const Request> log, const AllocatorOptions& options, Bytes capacity) {
  return Replay(log, options, MakePretendMemory(capacity));
}

// Why a scan and not a bisection: a smaller device flushes earlier, and may thereby give back a segment that a larger
// one keeps, splits for a small tensor and then cannot give back when a large request comes. So success is not
// monotone.
//
// Why the scan need not try every byte: the capacity enters a run only where DeviceMemory answers with no. A run with
// such answers repeats itself, to its failure, under every capacity below the smallest that would have turned one of
// them. The next candidate is that one.
//
// Nor need it play each of them from the start: up to a run's first refusal, a larger device does the same, so the next
// run goes on from there. Where memory grows until the end that is nearly all of the log.
Bytes MinimumCapacity(std::span<const Request> log, const AllocatorOptions& options) {
  Bytes capacity = LiveBytesPeak(log);
  if (options.kind == AllocatorKind::exact) {
    return capacity;
  }
  Playback sure(MakeAllocator(options, kUnlimited));  // up to where no capacity still in question has refused
  while (true) {
    Playback run(sure, capacity);
    run.Play(log, log.size());
    if (run.succeeded()) {
      return capacity;
    }
    sure.Play(log, *run.first_refusal());
    capacity = *run.enough_for_next();
  }
}

}  // namespace tidemark
