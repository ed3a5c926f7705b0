// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "traces/formats/format.h"
#include "traces/formats/torch_snapshot.h"

namespace tidemark {

/// Scopes of the snapshot's annotations are written as a phase and, where there is one, its microbatch: "forward#3".
/// torch.profiler's own step marks have that form as well; they begin steps.
inline constexpr char kTorchStep[] = "ProfilerStep";

/// A trace for each device that has entries or segments, in their order.
Result<TraceFile> TracesOf(const TorchSnapshot& snapshot);

}  // namespace tidemark
