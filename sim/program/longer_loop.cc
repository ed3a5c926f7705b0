// SPDX-License-Identifier: Apache-2.0
#include "sim/program/longer_loop.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <variant>
#include <vector>

namespace tidemark {
namespace {

/// How many members a family has matters only where the program finds them.
bool SameButForCounts(const Buffer& a, const Buffer& b) {
  return a.category == b.category && a.place == b.place && a.resident == b.resident && a.dtype == b.dtype &&
         a.elements == b.elements && a.base == b.base && a.slices == b.slices &&
         (!a.resident || a.count() == b.count());
}

bool SameStreams(const Stream& a, const Stream& b) { return a.kind == b.kind; }

bool SameGroups(const Group& a, const Group& b) { return a.size == b.size && a.ranks_per_node == b.ranks_per_node; }

bool SameChannels(const Channel& a, const Channel& b) {
  return a.from_role == b.from_role && a.to_role == b.to_role && a.name == b.name && a.crosses_nodes == b.crosses_nodes;
}

/// All of a leaf that memory and time depend on.
struct SameLeaf {
  const Node& other;

  bool operator()(const Alloc& a) const { return a.buffer.buffer == std::get<Alloc>(other).buffer.buffer; }
  bool operator()(const Free& a) const { return a.buffer.buffer == std::get<Free>(other).buffer.buffer; }
  bool operator()(const Compute& a) const {
    const auto& b = std::get<Compute>(other);
    return a.op == b.op && a.stream == b.stream && a.work == b.work && a.beside.valid() == b.beside.valid();
  }
  bool operator()(const Collective& a) const {
    const auto& b = std::get<Collective>(other);
    return a.kind == b.kind && a.group == b.group && a.dtype == b.dtype && a.payload_elements == b.payload_elements &&
           a.stream == b.stream && a.flight.valid() == b.flight.valid();
  }
  bool operator()(const Send& a) const {
    const auto& b = std::get<Send>(other);
    return a.channel == b.channel && a.stream == b.stream && a.buffer.buffer == b.buffer.buffer;
  }
  bool operator()(const Recv& a) const {
    const auto& b = std::get<Recv>(other);
    return a.channel == b.channel && a.stream == b.stream;
  }
  bool operator()(const Copy& a) const {
    const auto& b = std::get<Copy>(other);
    return a.stream == b.stream && a.bytes == b.bytes;
  }
  bool operator()(const Scale& a) const {
    const auto& b = std::get<Scale>(other);
    return a.stream == b.stream && a.buffer.buffer == b.buffer.buffer;
  }
  bool operator()(const Record& a) const {
    const auto& b = std::get<Record>(other);
    return a.event == b.event && a.stream == b.stream;
  }
  bool operator()(const Wait& a) const {
    const auto& b = std::get<Wait>(other);
    return a.event == b.event && a.stream == b.stream;
  }
  bool operator()(const HostSync& a) const { return a.stream == std::get<HostSync>(other).stream; }
  bool operator()(const Begin& a) const { return a.phase == std::get<Begin>(other).phase; }
  bool operator()(const End& a) const { return a.phase == std::get<End>(other).phase; }
  bool operator()(const Repeat& a) const { return a.size == std::get<Repeat>(other).size; }
};

bool SameNode(const Node& a, const Node& b) { return a.index() == b.index() && std::visit(SameLeaf{b}, a); }

bool SameTables(const Program& low, const Program& high) {
  return low.ranks == high.ranks && low.events.size() == high.events.size() &&
         std::ranges::equal(low.buffers, high.buffers, SameButForCounts) &&
         std::ranges::equal(low.streams, high.streams, SameStreams) &&
         std::ranges::equal(low.groups, high.groups, SameGroups) &&
         std::ranges::equal(low.channels, high.channels, SameChannels);
}

bool AllSame(std::span<const Node> a, std::span<const Node> b) {
  return std::ranges::equal(a, b, [](const Node& x, const Node& y) { return SameNode(x, y); });
}

/// Where both have the same nodes: the only loop that runs more often in `high`, if it is an outermost one.
std::optional<LongerLoop> FindAmongLoops(const Program& low, const Program& high) {
  std::optional<LongerLoop> found;
  std::size_t end_of_outermost = 0;
  for (std::size_t i = 0; i < low.nodes.size(); ++i) {
    const auto* repeat = std::get_if<Repeat>(&low.nodes[i]);
    if (repeat == nullptr) {
      continue;
    }
    const bool outermost = i >= end_of_outermost;
    if (outermost) {
      end_of_outermost = i + 1 + repeat->size;
    }
    const std::int64_t more = std::get<Repeat>(high.nodes[i]).count - repeat->count;
    if (more != 0) {
      if (found || !outermost || more < 0) {
        return std::nullopt;
      }
      found = LongerLoop{i, repeat->count, more};
    }
  }
  return found;
}

/// Whether all other loops run equally often.
bool SameCounts(std::span<const Node> a, std::span<const Node> b) {
  return std::ranges::equal(a, b, [](const Node& x, const Node& y) {
    const auto* repeat = std::get_if<Repeat>(&x);
    return repeat == nullptr || repeat->count == std::get<Repeat>(y).count;
  });
}

/// Where `low` has the body of the loop once by itself, or not at all.
std::optional<LongerLoop> FindWrittenOut(const Program& low, const Program& high) {
  const std::span<const Node> a = low.nodes, b = high.nodes;
  std::size_t at = 0, end_of_outermost = 0;
  for (; at < a.size() && at < b.size() && SameNode(a[at], b[at]); ++at) {
    const auto* repeat = std::get_if<Repeat>(&b[at]);
    if (repeat != nullptr && at >= end_of_outermost) {
      end_of_outermost = at + 1 + repeat->size;
    }
  }
  const auto* loop = at < b.size() ? std::get_if<Repeat>(&b[at]) : nullptr;
  if (loop == nullptr || at < end_of_outermost || b.size() <= a.size()) {
    return std::nullopt;
  }
  const std::size_t missing = b.size() - a.size();
  const std::int64_t times = missing == 1 ? 1 : 0;
  if ((missing != 1 && missing != loop->size + std::size_t{1}) || loop->count <= times) {
    return std::nullopt;
  }
  const auto same = [](std::span<const Node> x, std::span<const Node> y) { return AllSame(x, y) && SameCounts(x, y); };
  return same(a.first(at), b.first(at)) && same(a.subspan(at), b.subspan(at + missing))
             ? std::optional(LongerLoop{at, times, loop->count - times})
             : std::nullopt;
}

/// What a node is in, or beside.
std::span<const FlightId> FlightsOf(const Program& program, std::size_t node) {
  if (const auto* compute = std::get_if<Compute>(&program.nodes[node])) {
    return program.FlightsBeside(*compute);
  }
  const auto* collective = std::get_if<Collective>(&program.nodes[node]);
  return collective != nullptr && collective->flight.valid() ? std::span(&collective->flight, 1)
                                                             : std::span<const FlightId>();
}

/// The flights of two programs as they are found, node by node.
class FlightPairs {
 public:
  /// False where they are other flights than before.
  bool Add(std::span<const FlightId> a, std::span<const FlightId> b) {
    bool same = a.size() == b.size();
    for (std::size_t i = 0; same && i < a.size(); ++i) {
      same = high_.try_emplace(a[i], b[i]).first->second == b[i] && low_.try_emplace(b[i], a[i]).first->second == a[i];
    }
    return same;
  }

 private:
  std::map<FlightId, FlightId> high_, low_;  ///< of those of the other program
};

/// Whether kernels of both are beside the same collectives, and none beside some of the loop and some outside: their
/// relation, which decides how long the kernels take, would depend on how often the loop runs.
bool SameFlights(const Program& low, const Program& high, std::size_t loop) {
  const std::size_t end = loop + 1 + std::get<Repeat>(high.nodes[loop]).size;
  std::set<FlightId> inside;
  for (std::size_t i = loop; i < end; ++i) {
    std::ranges::copy(FlightsOf(high, i), std::inserter(inside, inside.end()));
  }
  FlightPairs pairs;
  // Of the loop `low` may lack its head, or all.
  const std::size_t missing = high.nodes.size() - low.nodes.size();
  for (std::size_t i = 0; i < high.nodes.size(); ++i) {
    const bool in_loop = i >= loop && i < end;
    const std::span<const FlightId> flights = FlightsOf(high, i);
    if (!in_loop && std::ranges::any_of(flights, [&](FlightId flight) { return inside.contains(flight); })) {
      return false;
    }
    const bool lacks = i >= loop && i < loop + missing;
    if (!lacks && !pairs.Add(FlightsOf(low, i < loop ? i : i - missing), flights)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<LongerLoop> FindLongerLoop(const Program& low, const Program& high) {
  if (!SameTables(low, high)) {
    return std::nullopt;
  }
  const std::optional<LongerLoop> found =
      AllSame(low.nodes, high.nodes) ? FindAmongLoops(low, high) : FindWrittenOut(low, high);
  return found && SameFlights(low, high, found->loop) ? found : std::nullopt;
}

}  // namespace tidemark
