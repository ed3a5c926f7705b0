// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/replay.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace tidemark {

double ReplayedSetting::fragmentation() const {
  return reserved > Bytes(0) ? static_cast<double>(unused.count()) / static_cast<double>(reserved.count()) : 0;
}

HeldSegment DescribeSegment(const Trace& trace, const InstantNames& names, Bytes bytes, Bytes free,
                            const std::vector<std::size_t>& holders) {
  HeldSegment segment{bytes, free, {}, {}};
  std::map<std::uint32_t, std::size_t> places;  // of tensors among the holders
  for (const std::size_t event : holders) {
    const MemoryEvent& born = trace.memory[event];
    const TraceTensor& tensor = trace.tensors[born.tensor.index];
    if (segment.stream.empty() && born.stream != kNoStream) {
      segment.stream = trace.streams[born.stream].name;
    }
    const auto [place, is_new] = places.emplace(born.tensor.index, segment.holders.size());
    if (is_new) {
      segment.holders.push_back({tensor.name, tensor.category, 0, Bytes(0), names.Born(event)});
    }
    SegmentHolder& holder = segment.holders[place->second];
    ++holder.count;
    holder.bytes += tensor.bytes;
  }
  std::ranges::stable_sort(segment.holders, std::greater(), &SegmentHolder::bytes);
  return segment;
}

std::vector<ReplayInstant> SummariseReplay(const Trace& replayed) {
  const std::size_t events = replayed.memory.size();
  const std::size_t stretch = std::max<std::size_t>(1, (events + kReplayInstants - 1) / kReplayInstants);
  std::vector<ReplayInstant> instants;
  for (std::size_t begin = 0; begin < events; begin += stretch) {
    ReplayInstant highest;
    for (std::size_t i = begin; i < std::min(events, begin + stretch); ++i) {
      const MemoryEvent& event = replayed.memory[i];
      const auto height = std::pair(event.reserved_bytes, event.allocator_bytes);
      if (i == begin || height > std::pair(highest.reserved, highest.allocated)) {
        highest = {event.issue, event.allocator_bytes, event.reserved_bytes};
      }
    }
    instants.push_back(highest);
  }
  return instants;
}

}  // namespace tidemark
