// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "traces/formats/perfetto_sequence.h"
#include "traces/trace.h"

namespace tidemark {

// What happened when, on tracks of a Perfetto process. Slices of one track nest; what overlaps otherwise goes to
// further tracks of the same kind. A trace holds no calls of the host one by one, so flows tell what it does hold: from
// a phase on the host to the first slice that it issued on each stream.

/// The tracks "phases" and one per stream, a slice for each phase and each piece of work, with those flows.
void WritePhasesAndStreams(const Trace& trace, std::uint64_t process, PerfettoSequence& sequence);

/// The track "steps".
void WriteSteps(const Trace& trace, std::uint64_t process, PerfettoSequence& sequence);

}  // namespace tidemark
