// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/quantity.h"
#include "traces/trace.h"

namespace tidemark {

/// How long the device computed in one pass, divided at memory events: one number more than there are `cuts`, the first
/// up to the first cut. Empty where the trace does not tell.
///
/// Where a trace has slices of compute streams, it is when at least one of them was busy with what the pass issued, cut
/// when the stream of birth got to the event (MemoryEvent::ready); a trace that does not tell that (ready = issue) cuts
/// too early for rows, but never loses or gains time. On a CPU the host is the device: the pass itself is cut.
std::vector<Nanos> DivideTime(const Trace& trace, const std::vector<std::optional<std::size_t>>& passes,
                              std::size_t pass, const std::vector<std::size_t>& cuts);

}  // namespace tidemark
