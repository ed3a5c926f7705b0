// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/quantity.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/tensor.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/calibrate/operands.h"
#include "profiler/calibrate/stopwatch.h"

namespace tidemark {
namespace {

using kernels::Queue;

constexpr std::uint32_t kStream = Stopwatch::kStream;

std::int64_t ElementsOf(Bytes bytes) { return bytes.count() / SizeOf(DType::fp32).count(); }

}  // namespace

BytesPerSec MeasureCopy(Device& device, const CalibrationSizes& sizes) {
  Operands operands(device, sizes.memory);
  const kernels::Tensor from = operands.Make(DType::fp32, ElementsOf(sizes.copied));
  const kernels::Tensor to = operands.Make(DType::fp32, ElementsOf(sizes.copied));
  const double seconds =
      Stopwatch(device, sizes.held).SecondsOfWork([&](const Queue& queue) { kernels::on::Copy(queue, from, to); });
  return BytesPerSec(FourDigits(2 * static_cast<double>(sizes.copied.count()) / seconds));
}

Link MeasureHostLink(Device& device, const CalibrationSizes& sizes) {
  constexpr Bytes kFew{4};
  Operands operands(device, sizes.memory);
  const kernels::Tensor there = operands.Make(DType::fp32, ElementsOf(sizes.copied));
  const std::unique_ptr<DeviceRoom> here = device.HostRoomFor(sizes.copied);
  std::fill_n(static_cast<std::uint8_t*>(here->data()), sizes.copied.count(), std::uint8_t{0});
  Stopwatch stopwatch(device, sizes.held);
  const double latency = stopwatch.SecondsOf([&] { device.Put(kStream, here->data(), there.data, kFew); });
  const double to = stopwatch.SecondsOf([&] { device.Put(kStream, here->data(), there.data, sizes.copied); });
  const double back =
      stopwatch.SecondsOfWaiting([&] { device.Fetch(kStream, there.data, here->data(), sizes.copied); });
  const double seconds = std::max(to + back - 2 * latency, (to + back) / 2);
  return {RoundToNanos(latency), BytesPerSec(FourDigits(2 * static_cast<double>(sizes.copied.count()) / seconds))};
}

}  // namespace tidemark
