// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "base/check.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/calibrate/stopwatch.h"

namespace tidemark {
namespace {

constexpr int kRepetitions = 30;

/// Seconds of one exchange of `elements` (of the full buffer), the fastest of kRepetitions, as the slower rank saw it.
Result<double> SecondsOfExchange(World& world, Communicator& group, CollectiveKind kind, DType dtype,
                                 std::int64_t elements) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::uint8_t> from(static_cast<std::size_t>((SizeOf(dtype) * elements).count())), to(from.size());
  const Exchange exchange{kind, Reduction::sum, dtype, elements, from.data(), to.data()};
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) {
    world.Sum(0);  // both begin together
    const Clock::time_point start = Clock::now();
    TIDEMARK_ASSIGN(const Communicator::Ticket ticket, group.Begin(exchange));
    TIDEMARK_TRY(group.Finish(ticket));
    best = std::min(best, world.Highest(std::chrono::duration<double>(Clock::now() - start).count()));
  }
  return best;
}

}  // namespace

// Of two ranks: an all-reduce has two steps and sends the whole payload, the other two one step and half of it.
Result<Link> MeasureLink(World& world) {
  TIDEMARK_CHECK(world.size() == 2);
  TIDEMARK_ASSIGN(const auto group, world.Split(0));
  constexpr std::int64_t kElements = std::int64_t{1} << 19;
  TIDEMARK_ASSIGN(const double shortest,
                  SecondsOfExchange(world, *group, CollectiveKind::all_reduce, DType::fp32, group->size()));
  const double latency = shortest / 2;
  double bytes = 0, seconds = 0;
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    const auto payload = static_cast<double>((SizeOf(dtype) * kElements).count());
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
      const double steps = kind == CollectiveKind::all_reduce ? 2 : 1;
      TIDEMARK_ASSIGN(const double taken, SecondsOfExchange(world, *group, kind, dtype, kElements));
      bytes += steps / 2 * payload;
      seconds += std::max(taken - steps * latency, 0.0);
    }
  }
  return Link{Nanos(static_cast<std::int64_t>(latency * 1e9)), BytesPerSec(FourDigits(bytes / seconds))};
}

Nanos TimeAroundKernels(const Trace& trace) {
  const StepMark& last = trace.steps.back();
  Nanos around = last.end - last.begin;
  std::int64_t kernels = 0;
  for (const Slice& slice : trace.slices) {
    if (slice.start >= last.begin) {
      around -= slice.end - slice.start;
      ++kernels;
    }
  }
  TIDEMARK_CHECK(kernels > 0);
  return around / kernels;
}

}  // namespace tidemark
