// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "traces/trace.h"

namespace tidemark {

/// The traces as what torch.cuda.memory._snapshot() returns, in a pickle of protocol 2: a device for each. Three frames
/// stand for the stack of each allocation: its tensor, its category, its phase. Segments follow from addresses and
/// reserved totals (TorchSegments); where a trace has no addresses the blocks are laid out here. Phases and steps
/// become annotations (torch_trace.h). Of times, microseconds are kept.
Result<std::string> WriteTorchSnapshot(std::span<const Trace> traces);

}  // namespace tidemark
