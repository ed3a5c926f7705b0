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
/// Without a simulated allocator its overhead is unknown. The band then uses allocated + 2 % as expected and + 5 % as
/// high (5 % is what users of such estimates reserve for fragmentation: compressed-tensors issue 587); it stops being
/// true for jobs whose buffers vary in size from step to step. On a plain CPU node all but the tensors is zero in the
/// machine file.
Band DeviceBytes(const Machine& machine, const DeviceUse& use);

/// Whether a role fits, even if all goes as badly as the band admits. The one definition of "fits".
bool Fits(const Band& device, Bytes device_memory);

}  // namespace tidemark
