// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tidemark {

/// What a snapshot's entry tells of the memory behind blocks.
struct TorchSegmentChange {
  enum class Kind : std::uint8_t {
    alloc,  ///< a segment of its own
    free,   ///< a whole segment
    map,    ///< becomes one with the segments of its stream that it touches
    unmap,  ///< a part of a segment
  };
  Kind kind = Kind::alloc;
  std::uint64_t address = 0;
  std::int64_t n_bytes = 0;
  std::uint16_t stream = 0;
};

/// Finds segments for blocks whose addresses are given, such that after each step a given number of bytes is reserved.
///
/// A trace tells where blocks lie and how much its allocator held, but not in which pieces. A new block that lies in no
/// segment gets one that begins with it and has all of the growth: which is what a caching allocator did. One that
/// reaches beyond its segment lengthens it by all of the growth that there is room for, as where memory is mapped page
/// by page. Where the total must fall, idle segments go, the smallest that suffices first, and parts of busy ones if
/// there are none. What cannot be had next to a block lies in a spare segment beyond all addresses. So the segments are
/// those of the allocator in the plain cases, and in all cases every live block lies in one segment and the total is
/// the given one (or larger: where two segments of a stream touch, 512 bytes of each idle stretch at that border stay).
class TorchSegments {
 public:
  struct Segment {
    std::int64_t n_bytes = 0;
    std::uint16_t stream = 0;
    bool mapped = false;  ///< some of it by Kind::map
  };

  /// Nothing is placed at or beyond `spare` but spare segments. Memory that touches is one segment where it is
  /// `joined`, as in a range of addresses that is mapped bit by bit; else the device may have given it in pieces.
  TorchSegments(std::uint64_t spare, bool joined) : spare_(spare), joined_(joined) {}

  /// Gives back what a new block at this address cannot be had beside, before it is allocated.
  void MakeRoom(std::uint64_t address, std::int64_t n_bytes, std::int64_t n_reserved,
                std::vector<TorchSegmentChange>& changes);
  /// A block of at least one byte, and `n_reserved` bytes reserved in all, or as many as the live blocks need. Changes
  /// are appended. False where the block lies over another one, or over segments that are not one: of two streams, or
  /// each from the device by itself. A block may lie in memory of another stream.
  bool Alloc(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream, std::int64_t n_reserved,
             std::vector<TorchSegmentChange>& changes);
  /// The block at this address is idle from now on.
  void Free(std::uint64_t address);
  /// So many bytes reserved, as far as live blocks and addresses (2^53) allow.
  void Reserve(std::int64_t n_reserved, std::vector<TorchSegmentChange>& changes);

  std::int64_t reserved() const { return reserved_; }
  const std::map<std::uint64_t, Segment>& segments() const { return segments_; }
  /// Live blocks, by address: their bytes.
  const std::map<std::uint64_t, std::int64_t>& live() const { return live_; }

 private:
  using Segments = std::map<std::uint64_t, Segment>;

  Segments::iterator SegmentAt(std::uint64_t address);
  bool Overlaps(std::uint64_t address, std::int64_t n_bytes) const;
  bool MapAround(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream, std::int64_t n_reserved,
                 std::vector<TorchSegmentChange>& changes);
  void Give(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream, std::int64_t n_reserved,
            std::vector<TorchSegmentChange>& changes);
  void AddSegment(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream,
                  std::vector<TorchSegmentChange>& changes);
  void Map(std::uint64_t address, std::int64_t n_bytes, std::uint16_t stream, std::vector<TorchSegmentChange>& changes);
  void Release(std::int64_t n_bytes, std::vector<TorchSegmentChange>& changes);
  bool ReleaseIdle(std::int64_t n_bytes, std::vector<TorchSegmentChange>& changes);
  bool ReleasePart(std::int64_t n_bytes, std::vector<TorchSegmentChange>& changes);

  void AddGap(std::uint64_t address, std::int64_t n_bytes);
  void RemoveGap(std::uint64_t address);
  void TakeFromGap(std::uint64_t address, std::int64_t n_bytes);

  Segments segments_;
  std::map<std::uint64_t, std::int64_t> live_;
  std::map<std::uint64_t, std::int64_t> gaps_;                // idle stretches, as long as their segments allow
  std::set<std::pair<std::int64_t, std::uint64_t>> by_size_;  // the same, smallest first
  std::set<std::pair<std::int64_t, std::uint64_t>> idle_;     // those that are whole segments
  std::int64_t reserved_ = 0;
  std::uint64_t spare_;
  bool joined_;
};

}  // namespace tidemark
