// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/mark_overlap.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tidemark {
namespace {

/// Streams all of whose collectives so far come before something: before what a stream is given next, or before what
/// waits for an event. A bit for each.
using Behind = std::uint64_t;
constexpr Behind kAll = ~Behind{0};
constexpr Behind BitOf(std::size_t stream) { return Behind{1} << stream; }

/// While it walks, a flight's number is the node of one of its collectives.
class OverlapMarker {
 public:
  explicit OverlapMarker(Program& program)
      : program_(program),
        state_{std::vector<Behind>(program.streams.size(), kAll), std::vector<Behind>(program.events.size()),
               std::vector<FlightId>(program.streams.size())},
        joined_to_(program.nodes.size()) {
    TIDEMARK_CHECK(program.streams.size() <= 64);
    std::iota(joined_to_.begin(), joined_to_.end(), 0);
  }

  void Walk(std::size_t at, std::size_t end) {
    while (at < end) {
      const std::size_t here = at++;
      if (const auto* repeat = std::get_if<Repeat>(&program_.nodes[here])) {
        const std::size_t body_end = at + repeat->size;
        // The first walk finds what is in flight at the end of the body, the second starts with it as well; where
        // that is nothing new, it would find the same.
        const State before = state_;
        Walk(at, body_end);
        if (State start = Either(before, state_); !SameOrder(start, before)) {
          state_ = std::move(start);
          Walk(at, body_end);
        }
        at = body_end;
      } else {
        Visit(here);
      }
    }
  }

  void Number() {
    std::vector<bool> has_kernels(program_.nodes.size());  // by root
    for (const Node& node : program_.nodes) {
      if (const auto* compute = std::get_if<Compute>(&node)) {
        for (const FlightId flight : compute->beside) {
          has_kernels[Root(flight).index] = true;
        }
      }
    }
    std::vector<FlightId> numbers(program_.nodes.size());  // by root
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < program_.nodes.size(); ++i) {
      auto* collective = std::get_if<Collective>(&program_.nodes[i]);
      if (const std::uint32_t root = Root({i}).index; collective != nullptr && has_kernels[root]) {
        FlightId& number = numbers[root];
        number = number.valid() ? number : FlightId{next++};
        collective->flight = number;
      }
    }
    for (Node& node : program_.nodes) {
      if (auto* compute = std::get_if<Compute>(&node)) {
        std::vector<FlightId>& beside = compute->beside;
        std::ranges::transform(beside, beside.begin(), [&](FlightId flight) { return numbers[Root(flight).index]; });
        std::ranges::sort(beside);
        beside.erase(std::unique(beside.begin(), beside.end()), beside.end());
      }
    }
  }

 private:
  struct State {
    std::vector<Behind> streams, events;
    std::vector<FlightId> latest;  ///< of each stream; not valid: it was given none
  };

  static bool SameOrder(const State& a, const State& b) { return a.streams == b.streams && a.events == b.events; }

  FlightId Root(FlightId flight) {
    while (joined_to_[flight.index] != flight.index) {
      flight.index = joined_to_[flight.index] = joined_to_[joined_to_[flight.index]];
    }
    return flight;
  }

  void Join(FlightId flight, FlightId with) { joined_to_[Root(flight).index] = Root(with).index; }

  /// Whether a compute stream may find the latest collective of a stream running.
  bool Flies(const State& state, std::size_t stream) const {
    bool flies = false;
    for (std::size_t i = 0; i < program_.streams.size(); ++i) {
      flies |= program_.streams[i].kind == StreamKind::compute && (state.streams[i] & BitOf(stream)) == 0;
    }
    return flies;
  }

  /// What may be in flight where either may be what came before.
  State Either(const State& a, const State& b) {
    State either = b;
    std::ranges::transform(a.streams, b.streams, either.streams.begin(), std::bit_and());
    std::ranges::transform(a.events, b.events, either.events.begin(), std::bit_and());
    for (std::size_t stream = 0; stream < a.latest.size(); ++stream) {
      if (Flies(a, stream) && Flies(b, stream)) {
        Join(a.latest[stream], b.latest[stream]);
      } else if (Flies(a, stream)) {
        either.latest[stream] = a.latest[stream];
      }
    }
    return either;
  }

  void Visit(std::size_t at) {
    Node& node = program_.nodes[at];
    if (auto* compute = std::get_if<Compute>(&node)) {
      if (program_.streams[compute->stream.index].kind != StreamKind::host) {
        Mark(*compute);
      }
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      Issue(FlightId{static_cast<std::uint32_t>(at)}, collective->stream.index);
    } else if (const auto* record = std::get_if<Record>(&node)) {
      state_.events[record->event.index] = state_.streams[record->stream.index];
    } else if (const auto* wait = std::get_if<Wait>(&node)) {
      state_.streams[wait->stream.index] |= state_.events[wait->event.index];
    } else if (const auto* sync = std::get_if<HostSync>(&node)) {
      // Whatever the host issues from now on comes behind.
      const Behind behind = sync->stream.valid() ? state_.streams[sync->stream.index] : kAll;
      for (Behind& stream : state_.streams) {
        stream |= behind;
      }
    }
  }

  void Issue(FlightId collective, std::size_t stream) {
    FlightId& latest = state_.latest[stream];
    if (Flies(state_, stream)) {
      Join(collective, latest);
    }
    latest = collective;
    for (std::vector<Behind>* all : {&state_.streams, &state_.events}) {
      for (Behind& behind : *all) {
        behind &= ~BitOf(stream);
      }
    }
    state_.streams[stream] |= BitOf(stream);
  }

  void Mark(Compute& compute) {
    const Behind behind = state_.streams[compute.stream.index];
    for (std::size_t stream = 0; stream < state_.latest.size(); ++stream) {
      const FlightId flight = state_.latest[stream];
      if ((behind & BitOf(stream)) == 0 && std::ranges::find(compute.beside, flight) == compute.beside.end()) {
        compute.beside.push_back(flight);
      }
    }
  }

  Program& program_;
  State state_;
  std::vector<std::uint32_t> joined_to_;  ///< by node of a collective: another of its flight, or itself
};

}  // namespace

void MarkOverlap(Program& program) {
  OverlapMarker marker(program);
  marker.Walk(0, program.nodes.size());
  marker.Number();
}

}  // namespace tidemark
