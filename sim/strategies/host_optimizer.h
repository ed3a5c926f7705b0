// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

// An optimizer in host memory (optimizer_step.offload), as far as systems have it in common: masters, moments and the
// gradients for them are buffers of the host; gradients come and new parameters go by copies over the machine's
// host_link; and the host itself runs the update, as kernels of stream 0, which take it as long as its memory and its
// arithmetic need (HostTime). Nothing is issued meanwhile, so a device that has nothing left to do waits for the host.
//
// A host kernel knows what its host was told by a HostSync: copies to the host that it reads stand before one. A device
// leaf is issued behind all that the host has done so far, so copies to the device need no order of their own.

/// The stream that is the host.
inline constexpr StreamId kHostStream{0};

/// Where the optimizer's state lies, and the stream that updates it.
Place StatePlace(const Job& job);
StreamId StateStream(const Role& role);

/// A buffer of the host, for all of this rank; invalid where it has no elements.
BufferRef DeclareOnHost(Role& role, std::string_view name, Category category, DType dtype, std::int64_t elements,
                        bool resident, bool kept);

/// One family per run with one buffer per block; `kept` from step to step, or alive only where it is allocated.
RunBuffers PerBlockOnHost(Role& role, const std::string& name, Category category, DType dtype,
                          const std::vector<std::int64_t>& elements, bool kept);

/// `elements` between the host's memory and the device's. A copy does not cast: `dtype` is that of both sides.
void CopyOverLink(Role& role, std::string_view name, StreamId stream, std::vector<BufferRef> reads,
                  std::vector<BufferRef> writes, std::int64_t elements, DType dtype);

}  // namespace tidemark
