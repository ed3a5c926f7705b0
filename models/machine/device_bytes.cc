// SPDX-License-Identifier: Apache-2.0
#include "models/machine/device_bytes.h"

namespace tidemark {
namespace {

constexpr std::int64_t kPage = std::int64_t{2} << 20;

Bytes WholePages(Bytes bytes) { return Bytes(RoundUp(bytes.count(), kPage)); }

}  // namespace

Band DeviceBytes(const Machine& machine, const DeviceUse& use) {
  const Bytes libraries = machine.communicator * use.communicators + machine.workspace;
  Band band;
  band.low = use.allocated + machine.context.low + libraries;
  band.expected = use.reserved.value_or(use.allocated + use.allocated / 100 * 4) + machine.context.expected + libraries;
  band.high =
      WholePages(use.reserved.value_or(use.allocated + use.allocated / 100 * 15)) + machine.context.high + libraries;
  return band;
}

bool Fits(const Band& device, Bytes device_memory) { return device.high <= device_memory; }

}  // namespace tidemark
