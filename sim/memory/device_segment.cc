// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/device_segment.h"

namespace tidemark {

Bytes DeviceSegment::bytes() const {
  Bytes sum;
  for (const Part& part : parts) {
    sum += part.bytes;
  }
  return sum;
}

Bytes DeviceSegment::free() const {
  Bytes sum;
  for (const Part& part : parts) {
    sum += part.handle ? Bytes(0) : part.bytes;
  }
  return sum;
}

}  // namespace tidemark
