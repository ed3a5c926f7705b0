// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "sim/program/hazards.h"
#include "sim/program/program.h"
#include "sim/program/verify.h"
#include "sim/program/walk.h"

namespace tidemark {

/// Collects findings up to a limit; a second finding with the same key is dropped.
class Findings {
 public:
  explicit Findings(std::size_t limit) : limit_(limit) {}

  using Key = std::tuple<Finding::Rule, std::int64_t, std::size_t, std::size_t>;  ///< rule, role, node, buffer
  /// Asked before a message is made: a leaf of a loop may break a rule in every iteration.
  bool IsNew(const Key& key) const { return !full() && !seen_.contains(key); }
  void Add(const Key& key, std::string message) {
    if (!full() && seen_.insert(key).second) {
      list_.push_back({std::get<0>(key), std::move(message)});
    }
  }
  bool full() const { return list_.size() >= limit_; }
  bool empty() const { return list_.empty(); }
  std::vector<Finding> Take() && { return std::move(list_); }

 private:
  std::size_t limit_;
  std::set<Key> seen_;
  std::vector<Finding> list_;
};

/// Reports every reference of `program` that points nowhere; false if there was one, and then the program must not be
/// walked.
bool CheckReferences(const Program& program, Findings& findings);

/// What one role shows to the others.
struct RoleTraffic {
  std::map<std::string, std::vector<Bytes>> sent, received;           ///< by channel
  std::map<std::string, std::vector<const Collective*>> collectives;  ///< by group that spans roles
};

/// Walks one role in issue order and checks lifetimes, order between streams, phases.
///
/// Order between streams
/// ---------------------
/// Each stream, the host included, counts its leaves, and carries a vector clock: clock[s][t] is the number of leaves
/// of stream t that are finished before the next leaf of s starts. A leaf starts after its host issued it, so it first
/// takes over the host's clock; the host in turn knows of a stream only what a HostSync told it. Record copies its
/// stream's clock, Wait takes the copy over.
///
/// Two accesses of a buffer, one a write, are ordered when the clock of the later one has reached the count of the
/// earlier. It is enough to remember the last write, and per stream the last read since then: what the last write is
/// ordered after need not be looked at again.
///
/// Alloc and Free happen on the host, but the memory changes hands in the order of the stream of birth. A Free lets
/// later leaves of that stream reuse the memory, so it is a write that knows what that stream and the host know. An
/// Alloc hands out memory that whatever the stream of birth knows may have used until now, so the first write must come
/// after all of that: the clock of the stream of birth is entered as reads.
/// A view is touched where its memory is. Of slices of one buffer it is told apart which were written, but not by whom.
/// A Free of a recorded buffer needs no order: the allocator itself waits before it hands the memory out again.
class RoleVerifier {
 public:
  RoleVerifier(const Program& program, Findings& findings);

  /// Also collects unordered accesses one by one, up to `limit`. Before Run.
  void CollectRaces(std::vector<Hazard>& races, std::size_t limit) {
    races_ = &races;
    most_races_ = limit;
  }
  void Run();
  RoleTraffic TakeTraffic() && { return std::move(traffic_); }

 private:
  using Clock = std::vector<std::uint32_t>;  ///< by stream

  /// A leaf of a stream, and what its reader would be told of it.
  struct Issued {
    std::uint32_t node = 0;
    std::int64_t microbatch = -1;
    Side side = Side::none;
    std::optional<std::int64_t> layer;
  };

  struct State {
    bool alive = false;
    bool blank = false;         ///< not written since it was allocated
    std::uint32_t writer = 0;   ///< stream of the last write
    std::uint32_t written = 0;  ///< its count, 0: nothing to wait for
  };

  void Visit(std::size_t at, std::span<const std::int64_t> loops);
  void Touch(const BufferRef& ref, Access access);
  void OnAlloc(const Buffer& buffer, std::size_t slot, const BufferRef& ref);
  void OnFree(const Buffer& buffer, std::size_t slot, const BufferRef& ref);
  void OnAccess(std::size_t slot, const BufferRef& ref, Access access);
  void CheckOrder(std::size_t slot, const BufferRef& ref, Access access, std::uint32_t stream, const Clock& clock);
  void ReportOrder(const BufferRef& ref, Access access, std::uint32_t stream, std::string_view earlier,
                   std::uint32_t other, std::uint32_t count);
  void CollectRace(const BufferRef& ref, Access access, std::uint32_t stream, std::uint32_t other, std::uint32_t count);
  void OnRecord(const Record& record);
  void OnWait(const Wait& wait);
  void OnSync(const HostSync& sync);
  void OnBegin(const Begin& begin);
  void OnEnd(const End& end);
  void OnCollective(const Collective& collective);
  void CheckEnd();
  void CheckSurvivor(std::uint32_t family, std::int64_t index);

  void Issue(StreamId stream);
  std::int64_t SlotOf(const BufferRef& ref) const;
  std::string Resolved(const BufferRef& ref) const;
  std::string Here() const;
  void Add(Finding::Rule rule, std::size_t buffer, std::string message);

  const Program& program_;
  Findings& findings_;
  RoleTraffic traffic_;
  std::vector<std::size_t> first_slot_;           ///< by family
  std::vector<State> states_;                     ///< by slot
  std::vector<std::size_t> first_slice_;          ///< by family
  std::vector<bool> blank_slices_;                ///< nothing was written since their buffer was allocated
  std::vector<std::vector<std::size_t>> slices_;  ///< by family: which slices are of it
  std::vector<std::uint32_t> reads_;              ///< by slot and stream: count of the last read since the last write
  std::vector<Clock> clocks_;                     ///< by stream
  std::vector<Clock> recorded_;                   ///< by event; empty before the first Record
  std::vector<std::vector<Issued>> issued_;       ///< by stream: its leaves, for messages
  std::vector<Phase> phases_;                     ///< open ones, outermost first
  std::vector<Hazard>* races_ = nullptr;          ///< nullptr: not wanted
  std::size_t most_races_ = 0;
  std::set<std::tuple<std::size_t, std::uint32_t, std::uint32_t, std::size_t>> raced_;  ///< slot, stream, leaf, node
  std::int64_t microbatch_ = -1;
  Side side_ = Side::none;
  std::size_t at_ = 0;  ///< current node
  std::span<const std::int64_t> loops_;
  std::uint32_t stream_ = 0;  ///< of the current leaf
};

/// "stage 0, node 17 (compute wq.forward, m=2, layer=3)".
std::string DescribeNode(const Program& program, std::size_t at, std::span<const std::int64_t> loops);
/// "compute wq.forward".
std::string ShortName(const Program& program, const Node& node);

}  // namespace tidemark
