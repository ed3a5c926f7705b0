// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/quantity.h"
#include "models/machine/machine.h"

namespace tidemark {

/// What of a role's memory decides the device's.
struct DeviceUse {
  Bytes allocated;                 ///< sum of tensor bytes at the peak
  std::optional<Bytes> reserved;   ///< what a simulated allocator took from the device; nothing: closed form only
  std::int64_t communicators = 0;  ///< distinct groups of more than one rank that the role talks to
};

/// What nvidia-smi would show for this process:
///
///   tensors + context + communicators x communicator + workspace
///
///              tensors                                        context
///   low        allocated (no rounding, no fragmentation)      machine's low
///   expected   reserved                                       machine's expected
///   high       reserved, in whole 2 MiB pages                 machine's high
///
/// Without a simulated allocator its overhead is unknown. The band then uses allocated + 4 % as expected (the median of
/// reserved over allocated in MooreThreads/SimuMax's measurements on eight B200, which span 1.03 to 1.09) and + 15 % as
/// high (FSDP2's gather and scatter buffers on streams of their own reach 1.14 in simulation); it stops being true for
/// jobs whose buffers vary in size from step to step. On a plain CPU node all but the tensors is zero in the machine
/// file.
Band DeviceBytes(const Machine& machine, const DeviceUse& use);

/// How much of the device a process may fill: all of it or, where its allocator may have `share` of it only
/// (allocator.memory_fraction; 0: not set), that share and what the band's low, expected and high have beside the
/// allocator's bytes. What fits at its high end is asked of the high one.
Band UsableMemory(const Machine& machine, double share, std::int64_t communicators);

/// Whether a role fits, even if all goes as badly as the band admits. The one definition of "fits".
bool Fits(const Band& device, Bytes usable_memory);

}  // namespace tidemark
