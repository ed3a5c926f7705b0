// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "base/quantity.h"
#include "base/result.h"
#include "models/machine/machine.h"
#include "profiler/comm/communicator.h"
#include "traces/trace.h"

namespace tidemark {

// What a machine is measured to do, with the executor's own kernels and communicators, one thread a rank. Each number
// is that of the fastest of many repetitions: what else runs on the machine only makes them slower.

/// Rates of every kind of kernel (models/machine/rates.h), by the keys of a machine file.
std::map<std::string, RateCurve> MeasureRates();

/// Products of two matrices of 512 x 512 in a dtype.
FlopsPerSec MeasureProducts(DType dtype);

/// Bytes read and written by a copy of more than caches hold.
BytesPerSec MeasureCopy();

/// The link between this rank and its only peer, which measures with it: latency of one step of a ring and bandwidth by
/// the bytes that a rank sends (sim/cost/collective_time.cc), over the exchanges that strategies make, bf16 and fp32.
Result<Link> MeasureLink(World& world);

/// What the executor itself takes around a kernel, on average, in the last step of a run that it measured.
Nanos TimeAroundKernels(const Trace& trace);

}  // namespace tidemark
