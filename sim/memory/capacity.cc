// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/capacity.h"

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "sim/memory/allocator.h"

namespace tidemark {
namespace {

constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());

struct Run {
  Outcome outcome;
  std::optional<Bytes> enough_for_next;
};

Run Play(std::span<const Request> log, const AllocatorOptions& options, Bytes capacity) {
  const std::unique_ptr<Allocator> allocator = MakeAllocator(options, capacity);
  std::vector<std::uint32_t> handles;  // by request id
  Outcome outcome;
  for (std::size_t i = 0; i < log.size() && outcome.succeeded(); ++i) {
    const Request& request = log[i];
    if (!request.alloc) {
      allocator->Free(handles.at(request.id));
      continue;
    }
    if (handles.size() <= request.id) {
      handles.resize(request.id + std::size_t{1});
    }
    if (const std::optional<Allocation> given = allocator->Allocate(request.bytes, request.stream)) {
      handles[request.id] = given->handle;
    } else {
      outcome.kind = Outcome::Kind::out_of_memory;
      outcome.failed_request = i;
      outcome.failed_bytes = request.bytes;
    }
  }
  outcome.cache_flushes = allocator->cache_flushes();
  if (outcome.succeeded() && outcome.cache_flushes > 0) {
    outcome.kind = Outcome::Kind::flushed;
  }
  outcome.allocated_peak = allocator->allocated_peak();
  outcome.reserved_peak = allocator->reserved_peak();
  return {outcome, allocator->device().enough_for_next()};
}

/// Highest sum of live requests: no capacity below it can do.
Bytes LiveBytesPeak(std::span<const Request> log) {
  return Play(log, {.kind = AllocatorKind::exact}, kUnlimited).outcome.allocated_peak;
}

}  // namespace

Outcome Replay(std::span<const Request> log, const AllocatorOptions& options, Bytes capacity) {
  return Play(log, options, capacity).outcome;
}

// Why a scan and not a bisection: a smaller device flushes earlier, and may thereby give back a segment that a larger
// one keeps, splits for a small tensor and then cannot give back when a large request comes. So success is not
// monotone.
//
// Why the scan need not try every page: the capacity enters a run only where the device refuses. A run that saw the
// device refuse repeats itself, to its failure, under every capacity below the smallest that would have granted one of
// those refused requests. The next candidate is that one.
Bytes MinimumCapacity(std::span<const Request> log, const AllocatorOptions& options) {
  Bytes capacity = LiveBytesPeak(log);
  if (options.kind == AllocatorKind::exact) {
    return capacity;
  }
  for (Run run = Play(log, options, capacity); !run.outcome.succeeded(); run = Play(log, options, capacity)) {
    capacity = *run.enough_for_next;
  }
  constexpr std::int64_t kPage = 2 << 20;
  return Bytes(RoundUp(capacity.count(), kPage));
}

}  // namespace tidemark
