// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibrate/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/pointwise_cuda.h"
#include "kernels/tensor.h"

namespace tidemark {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShortestSeconds = 1e-9;
/// A CUDA stream takes about a thousand launches before the host must wait; a call may be several.
constexpr std::int64_t kMostCallsInAQueue = 128;
constexpr int kMostHolds = 64;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double Seconds(Nanos nanos) { return static_cast<double>(nanos.count()) * 1e-9; }

/// The least of what `mean_of` says of up to kBatches batches of calls; of fewer where they take long.
template <class MeanOf>
double Least(std::int64_t most_calls, MeanOf mean_of) {
  constexpr int kBatches = 20;
  constexpr double kBatchSeconds = 1e-3, kEnoughSeconds = 0.05;
  mean_of(1);  // touches memory, and loads code, for the first time
  double best = mean_of(1);
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < kBatches && SecondsSince(begin) < kEnoughSeconds; ++i) {
    const double calls =
        std::clamp(kBatchSeconds / std::max(best, kShortestSeconds), 1.0, static_cast<double>(most_calls));
    best = std::min(best, mean_of(static_cast<std::int64_t>(calls)));
  }
  return std::max(best, kShortestSeconds);
}

}  // namespace

double FourDigits(double per_second) {
  const double unit = std::pow(10, std::floor(std::log10(per_second)) - 3);
  return std::round(per_second / unit) * unit;
}

Stopwatch::Stopwatch(Device& device, Bytes held) : device_(device), held_(device.is_synchronous() ? Bytes() : held) {
  if (held_ > Bytes()) {
    room_ = device.RoomFor(held_);
  }
}

double Stopwatch::SecondsOf(const std::function<void()>& give) {
  if (device_.is_synchronous()) {
    return SecondsOfWaiting(give);
  }
  return Least(kMostCallsInAQueue, [&](std::int64_t calls) { return BatchOf(calls, give).taken; });
}

double Stopwatch::SecondsOfWork(const Device::Work& work) {
  const Device::Work small = [&work](const kernels::Queue& queue) { work(queue); };  // copied without an allocation
  return SecondsOf([&] { device_.Give(kStream, small); });
}

double Stopwatch::SecondsOfWaiting(const std::function<void()>& call) const {
  return Least(INT64_MAX, [&](std::int64_t calls) {
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i) {
      call();
    }
    return SecondsSince(start) / static_cast<double>(calls);
  });
}

double Stopwatch::SecondsToGive(const Device::Work& work) {
  return Least(kMostCallsInAQueue,
               [&](std::int64_t) { return BatchOf(kMostCallsInAQueue, [&] { device_.Give(kStream, work); }).given; });
}

Stopwatch::Batch Stopwatch::BatchOf(std::int64_t calls, const std::function<void()>& give) {
  const kernels::Tensor held{{DType::u8, held_.count()}, room_ ? room_->data() : nullptr};
  for (;;) {
    const Device::Mark before = device_.MarkIn(kStream);
    for (int i = 0; room_ && i < holds_; ++i) {
      device_.Give(kStream, [held](const kernels::Queue& queue) { kernels::on::Zero(queue, held); });
    }
    const Clock::time_point start = Clock::now();
    const Device::Mark begin = device_.MarkIn(kStream);
    for (std::int64_t i = 0; i < calls; ++i) {
      give();
    }
    const Device::Mark end = device_.MarkIn(kStream);
    const double given = SecondsSince(start);
    device_.Finish(kStream);
    const double busy = Seconds(device_.Between(before, begin)), taken = Seconds(device_.Between(begin, end));
    device_.DropMarks();
    if (given <= busy || holds_ >= kMostHolds) {
      return {taken / static_cast<double>(calls), given / static_cast<double>(calls)};
    }
    holds_ *= 2;
  }
}

}  // namespace tidemark
