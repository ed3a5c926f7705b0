// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/tensor.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/calibrate/operands.h"
#include "profiler/calibrate/stopwatch.h"

namespace tidemark {
namespace {

constexpr int kRepetitions = 30;

/// One rank's part in exchanges that all ranks make together.
class Exchanger {
 public:
  Exchanger(World& world, Communicator& group, Device& device, Operands& operands)
      : world_(world), group_(group), device_(device), operands_(operands) {}

  /// Seconds of one exchange of `elements` (of the full buffer), the fastest of kRepetitions, as the slowest rank saw
  /// it.
  Result<double> SecondsOf(CollectiveKind kind, DType dtype, std::int64_t elements) {
    const kernels::Tensor from = operands_.Make(dtype, elements), to = operands_.Make(dtype, elements);
    const Exchange exchange{kind,      Reduction::sum, dtype, elements,
                            from.data, to.data,        0,     device_.StreamOf(Stopwatch::kStream)};
    device_.Finish(Stopwatch::kStream);
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kRepetitions; ++i) {
      world_.Sum(0);  // all begin together
      TIDEMARK_ASSIGN(const double seconds, group_.on_stream() ? ByMarks(exchange) : ByClock(exchange));
      best = std::min(best, world_.Highest(seconds));
    }
    return best;
  }

 private:
  Result<double> ByClock(const Exchange& exchange) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    TIDEMARK_ASSIGN(const Communicator::Ticket ticket, group_.Begin(exchange));
    TIDEMARK_TRY(group_.Finish(ticket));
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  /// Many in a row: hosts begin a little apart, which then counts once.
  Result<double> ByMarks(const Exchange& exchange) {
    constexpr int kInARow = 20;
    std::vector<Communicator::Ticket> tickets;
    const Device::Mark begin = device_.MarkIn(Stopwatch::kStream);
    for (int i = 0; i < kInARow; ++i) {
      TIDEMARK_ASSIGN(tickets.emplace_back(), group_.Begin(exchange));
    }
    const Device::Mark end = device_.MarkIn(Stopwatch::kStream);
    for (const Communicator::Ticket ticket : tickets) {
      TIDEMARK_TRY(group_.Finish(ticket));
    }
    device_.Finish(Stopwatch::kStream);
    const Nanos taken = device_.Between(begin, end);
    device_.DropMarks();
    return static_cast<double>(taken.count()) * 1e-9 / kInARow;
  }

  World& world_;
  Communicator& group_;
  Device& device_;
  Operands& operands_;
};

}  // namespace

// Of n ranks: an all-reduce has 2 (n - 1) steps and sends 2 (n - 1)/n of the payload, the other two half of both.
Result<Link> MeasureLink(World& world, Communicator& group, Device& device, const CalibrationSizes& sizes) {
  constexpr double kShortestSeconds = 1e-9;
  TIDEMARK_CHECK(group.size() >= 2 && group.size() == world.size());
  Operands operands(device, sizes.memory);
  Exchanger exchanger(world, group, device, operands);
  const auto others = static_cast<double>(group.size() - 1);
  TIDEMARK_ASSIGN(const double shortest, exchanger.SecondsOf(CollectiveKind::all_reduce, DType::fp32, group.size()));
  const double latency = shortest / (2 * others);
  double bytes = 0, seconds = 0;
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    const auto payload = static_cast<double>((SizeOf(dtype) * sizes.exchanged).count());
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
      const double rounds = kind == CollectiveKind::all_reduce ? 2 : 1;
      TIDEMARK_ASSIGN(const double taken, exchanger.SecondsOf(kind, dtype, sizes.exchanged));
      bytes += rounds * others / (others + 1) * payload;
      seconds += std::max(taken - rounds * others * latency, 0.0);
    }
  }
  return Link{Nanos(static_cast<std::int64_t>(latency * 1e9)),
              BytesPerSec(FourDigits(bytes / std::max(seconds, kShortestSeconds)))};
}

}  // namespace tidemark
