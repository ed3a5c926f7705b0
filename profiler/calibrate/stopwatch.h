// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/quantity.h"
#include "profiler/device/device.h"

namespace tidemark {

/// A rate in four digits: more would say nothing.
double FourDigits(double per_second);

/// How long work on one stream of a device takes: by the host's clock where work is done when it is given, else by
/// marks around many calls. The stream is then kept busy before them for as long as the host takes to issue them, so
/// that what is measured is never the host.
class Stopwatch {
 public:
  static constexpr std::uint32_t kStream = 1;

  /// `held`: bytes to write meanwhile, on a device that is not synchronous. The device outlives it.
  Stopwatch(Device& device, Bytes held);

  /// Seconds of one call, which gives work to kStream: the least mean of several batches, each of so many calls that it
  /// takes a millisecond where that many fit into a stream's queue. A first call is not counted.
  double SecondsOf(const std::function<void()>& give);
  double SecondsOfWork(const Device::Work& work);
  /// The same by the host's clock, of a call for which the host waits.
  double SecondsOfWaiting(const std::function<void()>& call) const;
  /// What the host takes to give it, while the stream has room for more.
  double SecondsToGive(const Device::Work& work);

 private:
  struct Batch {
    double taken = 0, given = 0;  ///< seconds of a call: on the device, and to issue it
  };
  Batch BatchOf(std::int64_t calls, const std::function<void()>& give);

  Device& device_;
  Bytes held_;
  std::unique_ptr<DeviceRoom> room_;
  int holds_ = 1;
};

}  // namespace tidemark
