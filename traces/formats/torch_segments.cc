// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_segments.h"

#include <algorithm>
#include <iterator>

namespace tidemark {
namespace {

std::uint64_t End(std::uint64_t address, std::int64_t n_bytes) { return address + static_cast<std::uint64_t>(n_bytes); }

}  // namespace

TorchSegments::Segments::iterator TorchSegments::SegmentAt(std::uint64_t address) {
  auto found = segments_.upper_bound(address);
  if (found == segments_.begin()) {
    return segments_.end();
  }
  --found;
  return address < End(found->first, found->second.n_bytes) ? found : segments_.end();
}

bool TorchSegments::Overlaps(std::uint64_t address, std::int64_t n_bytes) const {
  const auto next = live_.lower_bound(address);
  if (next != live_.end() && next->first < End(address, n_bytes)) {
    return true;
  }
  return next != live_.begin() && End(std::prev(next)->first, std::prev(next)->second) > address;
}

void TorchSegments::MakeRoom(std::uint64_t address, std::int64_t n_bytes, std::int64_t n_reserved,
                             std::vector<TorchSegmentChange>& changes) {
  const std::int64_t growth = n_reserved - reserved_;
  if (growth < n_bytes && SegmentAt(address) == segments_.end()) {
    Release(n_bytes - growth, changes);
  }
}

bool TorchSegments::Alloc(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream, std::int64_t n_reserved,
                          std::vector<TorchSegmentChange>& changes) {
  if (Overlaps(address, n_bytes)) {
    return false;
  }
  const auto around = SegmentAt(address);
  if (around == segments_.end() || End(around->first, around->second.n_bytes) < End(address, n_bytes)) {
    if (!MapAround(address, n_bytes, stream, n_reserved, changes)) {
      return false;
    }
    if (SegmentAt(address) == segments_.end()) {
      Give(address, n_bytes, stream, n_reserved, changes);
    }
  }
  TakeFromGap(address, n_bytes);
  live_[address] = n_bytes;
  Reserve(n_reserved, changes);
  return true;
}

/// Memory for a block that lies in none, with all that the total grows by up to the next segment.
void TorchSegments::Give(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream, std::int64_t n_reserved,
                         std::vector<TorchSegmentChange>& changes) {
  const auto next = segments_.lower_bound(address);
  const std::uint64_t limit = next == segments_.end() ? spare_ : std::min(next->first, spare_);
  const std::int64_t room = static_cast<std::int64_t>(std::max(limit, End(address, n_bytes)) - address);
  const std::int64_t size = std::clamp(n_reserved - reserved_, n_bytes, room);
  const auto before = next == segments_.begin() ? segments_.end() : std::prev(next);
  if (joined_ && before != segments_.end() && End(before->first, before->second.n_bytes) == address) {
    Map(address, size, before->second.stream, changes);
  } else if (joined_ && next != segments_.end() && next->first == End(address, size)) {
    Map(address, size, next->second.stream, changes);
  } else {
    AddSegment(address, size, stream, changes);
  }
}

/// Maps what a block lacks of memory, where it lies in segments with a part of it; where it reaches beyond the last
/// one, also what else the total grows by, up to the next. The new memory is of the stream that has the old.
bool TorchSegments::MapAround(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream,
                              std::int64_t n_reserved, std::vector<TorchSegmentChange>& changes) {
  const std::uint64_t end = End(address, n_bytes);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> missing;
  std::int64_t growth = n_reserved - reserved_;
  std::uint64_t at = address;
  bool touches = false;
  auto segment = SegmentAt(address);
  for (segment = segment == segments_.end() ? segments_.lower_bound(address) : segment;
       segment != segments_.end() && segment->first < end; ++segment) {
    if (touches && segment->second.stream != stream) {
      return false;
    }
    touches = true;
    stream = segment->second.stream;
    if (segment->first > at) {
      missing.emplace_back(at, segment->first);
      growth -= static_cast<std::int64_t>(segment->first - at);
    }
    at = End(segment->first, segment->second.n_bytes);
  }
  if (touches && at < end) {
    const std::uint64_t limit = segment == segments_.end() ? spare_ : std::min(segment->first, spare_);
    const auto least = static_cast<std::int64_t>(end - at);
    missing.emplace_back(at, End(at, std::clamp(growth, least, static_cast<std::int64_t>(std::max(limit, end) - at))));
  }
  for (const auto& [from, to] : missing) {
    Map(from, static_cast<std::int64_t>(to - from), stream, changes);
  }
  const auto around = SegmentAt(address);
  return !touches || (around != segments_.end() && End(around->first, around->second.n_bytes) >= end);
}

void TorchSegments::AddSegment(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream,
                               std::vector<TorchSegmentChange>& changes) {
  segments_[address] = {n_bytes, stream, false};
  reserved_ += n_bytes;
  AddGap(address, n_bytes);
  changes.push_back({TorchSegmentChange::Kind::alloc, address, n_bytes, stream});
}

void TorchSegments::Map(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream,
                        std::vector<TorchSegmentChange>& changes) {
  changes.push_back({TorchSegmentChange::Kind::map, address, n_bytes, stream});
  reserved_ += n_bytes;
  std::uint64_t begin = address, end = End(address, n_bytes), gap_begin = begin, gap_end = end;
  const auto gap_at = [&](std::uint64_t where) {
    auto gap = gaps_.upper_bound(where);
    return gap == gaps_.begin() ? gaps_.end() : std::prev(gap);
  };
  const auto next = segments_.find(end);
  if (next != segments_.end() && next->second.stream == stream) {
    if (const auto gap = gaps_.find(end); gap != gaps_.end()) {
      gap_end = End(gap->first, gap->second);
      RemoveGap(gap->first);
    }
    end = End(next->first, next->second.n_bytes);
    segments_.erase(next);
  }
  auto before = segments_.lower_bound(begin);
  if (before != segments_.begin() && End(std::prev(before)->first, std::prev(before)->second.n_bytes) == begin &&
      std::prev(before)->second.stream == stream) {
    --before;
    if (const auto gap = gap_at(begin); gap != gaps_.end() && End(gap->first, gap->second) == address) {
      gap_begin = gap->first;
      RemoveGap(gap->first);
    }
    begin = before->first;
  }
  segments_[begin] = {static_cast<std::int64_t>(end - begin), stream, true};
  AddGap(gap_begin, static_cast<std::int64_t>(gap_end - gap_begin));
}

void TorchSegments::Free(std::uint64_t address) {
  const auto block = live_.find(address);
  if (block == live_.end()) {
    return;
  }
  const auto segment = SegmentAt(address);
  const std::uint64_t segment_end = End(segment->first, segment->second.n_bytes);
  std::uint64_t begin = address, end = End(address, block->second);
  live_.erase(block);
  if (const auto gap = gaps_.find(end); gap != gaps_.end() && end < segment_end) {
    end = End(gap->first, gap->second);
    RemoveGap(gap->first);
  }
  const auto after = gaps_.lower_bound(begin);
  if (after != gaps_.begin()) {
    const auto gap = std::prev(after);
    if (End(gap->first, gap->second) == begin && gap->first >= segment->first) {
      begin = gap->first;
      RemoveGap(gap->first);
    }
  }
  AddGap(begin, static_cast<std::int64_t>(end - begin));
}

void TorchSegments::Reserve(std::int64_t n_reserved, std::vector<TorchSegmentChange>& changes) {
  if (reserved_ > n_reserved) {
    Release(reserved_ - n_reserved, changes);
  }
  constexpr std::uint64_t kHighestAddress = std::uint64_t{1} << 53U;  // that a viewer's numbers tell exactly
  constexpr std::uint64_t kApart = std::uint64_t{1} << 21U;
  const std::int64_t missing = n_reserved - reserved_;
  if (missing > 0 && spare_ < kHighestAddress && static_cast<std::uint64_t>(missing) < kHighestAddress - spare_) {
    AddSegment(spare_, missing, 0, changes);
    spare_ = (End(spare_, missing) / kApart + 2) * kApart;  // it touches no other
  }
}

void TorchSegments::Release(std::int64_t n_bytes, std::vector<TorchSegmentChange>& changes) {
  const std::int64_t target = reserved_ - n_bytes;
  while (reserved_ > target && (ReleaseIdle(reserved_ - target, changes) || ReleasePart(reserved_ - target, changes))) {
  }
}

/// A whole idle segment: the smallest that suffices, else the largest.
bool TorchSegments::ReleaseIdle(std::int64_t n_bytes, std::vector<TorchSegmentChange>& changes) {
  if (idle_.empty()) {
    return false;
  }
  auto chosen = idle_.lower_bound({n_bytes, 0});
  chosen = chosen == idle_.end() ? std::prev(chosen) : chosen;
  const auto [size, address] = *chosen;
  changes.push_back({TorchSegmentChange::Kind::free, address, size, segments_[address].stream});
  RemoveGap(address);
  segments_.erase(address);
  reserved_ -= size;
  return true;
}

/// A part of the largest idle stretch. Where a segment of the same stream touches it, a little stays between: a viewer
/// that plays the entries backwards would take the two for one.
bool TorchSegments::ReleasePart(std::int64_t n_bytes, std::vector<TorchSegmentChange>& changes) {
  constexpr std::uint64_t kBetween = 512;
  if (by_size_.empty()) {
    return false;
  }
  const auto [gap_size, gap] = *by_size_.rbegin();
  const auto found = SegmentAt(gap);
  const std::uint64_t begin = found->first;
  const Segment segment = found->second;
  const std::uint64_t end = End(begin, segment.n_bytes), gap_end = End(gap, gap_size);
  const auto touched = [&](std::uint64_t address) {
    const auto other = SegmentAt(address);
    return other != segments_.end() && other->second.stream == segment.stream;
  };
  const std::uint64_t lowest = gap + (gap == begin && begin > 0 && touched(begin - 1) ? kBetween : 0);
  const std::uint64_t to = gap_end - (gap_end == end && touched(end) ? kBetween : 0);
  if (lowest >= to) {
    return false;
  }
  const std::int64_t size = std::min(n_bytes, static_cast<std::int64_t>(to - lowest));
  const std::uint64_t from = to - static_cast<std::uint64_t>(size);
  changes.push_back({TorchSegmentChange::Kind::unmap, from, size, segment.stream});
  reserved_ -= size;
  RemoveGap(gap);
  segments_.erase(begin);
  if (from > begin) {
    segments_[begin] = {static_cast<std::int64_t>(from - begin), segment.stream, true};
  }
  if (to < end) {
    segments_[to] = {static_cast<std::int64_t>(end - to), segment.stream, true};
  }
  if (from > gap) {
    AddGap(gap, static_cast<std::int64_t>(from - gap));
  }
  if (gap_end > to) {
    AddGap(to, static_cast<std::int64_t>(gap_end - to));
  }
  return true;
}

void TorchSegments::AddGap(std::uint64_t address, std::int64_t n_bytes) {
  gaps_[address] = n_bytes;
  by_size_.emplace(n_bytes, address);
  const auto segment = segments_.find(address);
  if (segment != segments_.end() && segment->second.n_bytes == n_bytes) {
    idle_.emplace(n_bytes, address);
  }
}

void TorchSegments::RemoveGap(std::uint64_t address) {
  const auto gap = gaps_.find(address);
  by_size_.erase({gap->second, address});
  idle_.erase({gap->second, address});
  gaps_.erase(gap);
}

/// A block takes a stretch out of the gap that it lies in.
void TorchSegments::TakeFromGap(std::uint64_t address, std::int64_t n_bytes) {
  const auto gap = std::prev(gaps_.upper_bound(address));
  const std::uint64_t begin = gap->first, end = End(gap->first, gap->second);
  RemoveGap(begin);
  if (begin < address) {
    AddGap(begin, static_cast<std::int64_t>(address - begin));
  }
  if (End(address, n_bytes) < end) {
    AddGap(End(address, n_bytes), static_cast<std::int64_t>(end - End(address, n_bytes)));
  }
}

}  // namespace tidemark
