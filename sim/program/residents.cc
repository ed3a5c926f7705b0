// SPDX-License-Identifier: Apache-2.0
#include "sim/program/residents.h"

namespace tidemark {

std::vector<ResidentBuffer> ResidentsOf(const Program& program) {
  const std::vector<Buffer>& buffers = program.buffers;
  std::vector<ResidentBuffer> residents;
  for (std::uint32_t first = 0, end = 0; first < buffers.size(); first = end) {
    const Buffer& buffer = buffers[first];
    const auto belongs = [&](const Buffer& other) {
      return other.resident == buffer.resident && other.category == buffer.category && other.extents == buffer.extents;
    };
    while (end < buffers.size() && belongs(buffers[end])) {
      ++end;
    }
    for (std::int64_t i = 0; buffer.resident && i < buffer.count(); ++i) {
      for (std::uint32_t id = first; id < end; ++id) {
        residents.push_back({BufferId{id}, i / buffer.extents[1], i % buffer.extents[1]});
      }
    }
  }
  return residents;
}

}  // namespace tidemark
