// SPDX-License-Identifier: Apache-2.0
#include "models/machine/device_bytes.h"

#include <algorithm>

namespace tidemark {
namespace {

constexpr std::int64_t kPage = std::int64_t{2} << 20;

Bytes WholePages(Bytes bytes) { return Bytes(RoundUp(bytes.count(), kPage)); }

Bytes Libraries(const Machine& machine, std::int64_t communicators) {
  return machine.communicator * communicators + machine.workspace;
}

}  // namespace

Band DeviceBytes(const Machine& machine, const DeviceUse& use) {
  const Bytes libraries = Libraries(machine, use.communicators);
  Band band;
  band.low = use.allocated + machine.context.low + libraries;
  band.expected = use.reserved.value_or(use.allocated + use.allocated / 100 * 4) + machine.context.expected + libraries;
  band.high =
      WholePages(use.reserved.value_or(use.allocated + use.allocated / 100 * 15)) + machine.context.high + libraries;
  return band;
}

Band UsableMemory(const Machine& machine, double share, std::int64_t communicators) {
  const Bytes all = machine.device_memory;
  if (share == 0) {
    return {all, all, all};
  }
  const Bytes process =
      Bytes(static_cast<std::int64_t>(share * static_cast<double>(all.count()))) + Libraries(machine, communicators);
  const Band& context = machine.context;
  return {std::min(all, process + context.low), std::min(all, process + context.expected),
          std::min(all, process + context.high)};
}

bool Fits(const Band& device, Bytes usable_memory) { return device.high <= usable_memory; }

}  // namespace tidemark
