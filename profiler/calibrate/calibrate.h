// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/quantity.h"
#include "base/result.h"
#include "models/machine/machine.h"
#include "profiler/calibrate/sizes.h"
#include "profiler/comm/communicator.h"
#include "profiler/device/device.h"
#include "traces/trace.h"

namespace tidemark {

// What a device is measured to do, with the executor's own kernels and communicators: a processor one thread a rank, a
// GPU one stream. Each number is that of the fastest of many repetitions: what else runs on the machine only makes them
// slower.

struct RateLimits {
  /// What a kernel takes that does nothing, which predictions add to each: it is no part of rates. Where it is nearly
  /// all, a tenth of the time is left for the work, so that rates stay finite.
  Nanos launch;
  /// What the memory moves in a second: no kernel that streams is rated above it. A call that is repeated finds its
  /// operands in a GPU's cache (50 MiB of an H100's); in a step they come from memory, as others were used since.
  std::optional<BytesPerSec> bytes = std::nullopt;
};

/// Rates of every kind of kernel (models/machine/rates.h) that `sizes` has points for, by the keys of a machine file.
std::map<std::string, RateCurve> MeasureRates(Device& device, const CalibrationSizes& sizes, const RateLimits& limits);

/// Keeps the device at work for sizes.warm with the product of sizes.peak: a GPU's clocks fall from what they are at
/// first to what they are in a long step.
void WarmUp(Device& device, const CalibrationSizes& sizes);

/// The product of sizes.peak in a dtype.
FlopsPerSec MeasureProducts(Device& device, const CalibrationSizes& sizes, DType dtype);

/// Bytes read and written by a copy of sizes.copied within the device's memory, which caches do not hold.
BytesPerSec MeasureCopy(Device& device, const CalibrationSizes& sizes);

/// Between the host's memory, where the device need not stage it, and the device's: the latency of 4 bytes, and the
/// bandwidth of sizes.copied there and back.
Link MeasureHostLink(Device& device, const CalibrationSizes& sizes);

/// A kernel that does next to nothing.
struct LaunchCost {
  Nanos host;    ///< to issue it
  Nanos alone;   ///< until the next one of its stream begins, where that is the same: no part of measured rates
  Nanos device;  ///< the same among others and with operands from memory, as in a step
};
LaunchCost MeasureLaunch(Device& device, const CalibrationSizes& sizes);

/// The link between the ranks of a world, two or more, which all measure it and are all in `group`: latency of one step
/// of a ring and bandwidth by the bytes that a rank sends (sim/cost/collective_time.cc), over the exchanges that
/// strategies make, of sizes.exchanged elements of bf16 and fp32 in the device's memory.
Result<Link> MeasureLink(World& world, Communicator& group, Device& device, const CalibrationSizes& sizes);

/// What the executor itself takes around a kernel, on average, in the last step of a run that it measured, where the
/// host runs the kernels itself.
Nanos TimeAroundKernels(const Trace& trace);

/// Operations of the last step, of a run whose work was timed.
std::int64_t OperationsOf(const Trace& trace);
/// What the host takes for one of as many operations that it gives to a device's streams, on average, in the last step
/// of a run: from the step's beginning until the last phase was issued.
Nanos TimeToIssue(const Trace& trace, std::int64_t operations);

}  // namespace tidemark
