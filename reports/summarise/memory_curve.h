// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "base/quantity.h"
#include "traces/trace.h"

namespace tidemark {

/// The most that was alive in each of `stretches` equal parts of the time up to a trace's last memory event, by the
/// device's clock: an event counts when its stream of birth got there, but never before the one issued before it. Empty
/// where the trace tells no memory, or no time passes. Cost: linear in the events.
std::vector<Bytes> MemoryCurve(const Trace& trace, std::size_t stretches);

}  // namespace tidemark
