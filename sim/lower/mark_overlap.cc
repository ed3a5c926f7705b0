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
#include "sim/program/flight_sets.h"

namespace tidemark {
namespace {

/// Streams all of whose collectives so far come before something: before what a stream is given next, or before what
/// waits for an event. A bit for each.
using Behind = std::uint64_t;
constexpr Behind kAll = ~Behind{0};
constexpr Behind BitOf(std::size_t stream) { return Behind{1} << stream; }

/// While it walks, a flight's number is the node of one of its collectives, and kernels are beside one of `marks_`.
class OverlapMarker {
 public:
  explicit OverlapMarker(Program& program)
      : program_(program),
        state_{std::vector<Behind>(program.streams.size(), kAll), std::vector<Behind>(program.events.size()),
               std::vector<Flight>(program.streams.size())},
        current_(program.streams.size()),
        joined_to_(program.nodes.size()),
        has_kernel_behind_(program.nodes.size()) {
    TIDEMARK_CHECK(program.streams.size() <= 64);
    std::iota(joined_to_.begin(), joined_to_.end(), 0);
    for (Node& node : program.nodes) {
      if (auto* compute = std::get_if<Compute>(&node)) {
        compute->beside = {};
      } else if (auto* collective = std::get_if<Collective>(&node)) {
        collective->flight = {};
      }
    }
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
        if (State start = Either(before, state_); start != before) {
          state_ = std::move(start);
          Changed();
          Walk(at, body_end);
        }
        at = body_end;
      } else {
        Visit(here);
      }
    }
  }

  void Number() {
    std::vector<FlightId> numbers(program_.nodes.size());  // by root
    std::uint32_t next = 0;
    std::vector<Compute*> marked;
    for (std::uint32_t i = 0; i < program_.nodes.size(); ++i) {
      if (auto* compute = std::get_if<Compute>(&program_.nodes[i])) {
        if (compute->beside.valid()) {
          marked.push_back(compute);
        }
      } else if (auto* collective = std::get_if<Collective>(&program_.nodes[i]);
                 collective != nullptr && has_kernel_behind_[i]) {
        FlightId& number = numbers[Root({i}).index];
        number = number.valid() ? number : FlightId{next++};
        collective->flight = number;
      }
    }
    FlightSets sets;
    std::vector<FlightSetId> numbered(marks_.size());
    for (Compute* compute : marked) {
      FlightSetId& set = numbered[compute->beside.index];
      if (!set.valid()) {
        std::vector<FlightId>& flights = marks_[compute->beside.index];
        std::ranges::transform(flights, flights.begin(), [&](FlightId flight) { return numbers[Root(flight).index]; });
        KeepDistinct(flights);
        set = sets.Intern(flights);
      }
      compute->beside = set;
    }
    program_.flight_sets = sets.sets();
  }

 private:
  /// What one stream was given that the compute streams have not all waited for.
  struct Flight {
    FlightId of;                         ///< not valid: nothing
    std::vector<std::uint32_t> unheard;  ///< nodes of collectives that no kernel was issued behind yet, ascending
    friend bool operator==(const Flight&, const Flight&) = default;
  };
  struct State {
    std::vector<Behind> streams, events;
    std::vector<Flight> flights;  ///< by stream
    friend bool operator==(const State&, const State&) = default;
  };

  template <class Element>
  static void KeepDistinct(std::vector<Element>& elements) {
    std::ranges::sort(elements);
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  }

  /// What is in flight for the next kernel may be another than for the last.
  void Changed() { std::ranges::fill(current_, FlightSetId{}); }

  FlightId Root(FlightId flight) {
    while (joined_to_[flight.index] != flight.index) {
      flight.index = joined_to_[flight.index] = joined_to_[joined_to_[flight.index]];
    }
    return flight;
  }

  void Join(FlightId flight, FlightId with) { joined_to_[Root(flight).index] = Root(with).index; }

  bool Computes(std::size_t stream) const { return program_.streams[stream].kind == StreamKind::compute; }

  /// What may be in flight where either may be what came before.
  State Either(const State& a, const State& b) {
    State either = a;
    std::ranges::transform(a.streams, b.streams, either.streams.begin(), std::bit_and());
    std::ranges::transform(a.events, b.events, either.events.begin(), std::bit_and());
    for (std::size_t stream = 0; stream < a.flights.size(); ++stream) {
      Flight& flight = either.flights[stream];
      const Flight& other = b.flights[stream];
      if (flight.of.valid() && other.of.valid()) {
        Join(other.of, flight.of);
      }
      flight.of = flight.of.valid() ? flight.of : other.of;
      flight.unheard.insert(flight.unheard.end(), other.unheard.begin(), other.unheard.end());
      KeepDistinct(flight.unheard);
    }
    return either;
  }

  void Visit(std::size_t at) {
    Node& node = program_.nodes[at];
    if (auto* compute = std::get_if<Compute>(&node)) {
      if (Computes(compute->stream.index)) {
        Mark(*compute);
      }
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      Issue(static_cast<std::uint32_t>(at), collective->stream.index);
    } else if (const auto* record = std::get_if<Record>(&node)) {
      state_.events[record->event.index] = state_.streams[record->stream.index];
    } else if (const auto* wait = std::get_if<Wait>(&node)) {
      state_.streams[wait->stream.index] |= state_.events[wait->event.index];
      Land();
    } else if (const auto* sync = std::get_if<HostSync>(&node)) {
      // Whatever the host issues from now on comes behind.
      const Behind behind = sync->stream.valid() ? state_.streams[sync->stream.index] : kAll;
      for (Behind& stream : state_.streams) {
        stream |= behind;
      }
      Land();
    }
  }

  void Issue(std::uint32_t collective, std::size_t stream) {
    Flight& flight = state_.flights[stream];
    if (flight.of.valid()) {
      Join({collective}, flight.of);
    } else {
      flight.of = {collective};
    }
    const auto at = std::ranges::lower_bound(flight.unheard, collective);
    if (at == flight.unheard.end() || *at != collective) {
      flight.unheard.insert(at, collective);
    }
    Changed();
    for (std::vector<Behind>* all : {&state_.streams, &state_.events}) {
      for (Behind& behind : *all) {
        behind &= ~BitOf(stream);
      }
    }
    state_.streams[stream] |= BitOf(stream);
  }

  /// Ends the flights that all compute streams have waited for.
  void Land() {
    Behind heard = kAll;
    for (std::size_t i = 0; i < state_.streams.size(); ++i) {
      heard &= Computes(i) ? state_.streams[i] : kAll;
    }
    for (std::size_t stream = 0; stream < state_.flights.size(); ++stream) {
      if ((heard & BitOf(stream)) != 0) {
        state_.flights[stream].of = {};
        state_.flights[stream].unheard.clear();
      }
    }
    Changed();
  }

  void Mark(Compute& compute) {
    if (state_.streams[compute.stream.index] == kAll) {
      return;
    }
    FlightSetId& current = current_[compute.stream.index];
    if (!current.valid()) {
      marks_.push_back(BesideNow(compute.stream.index));
      current = {static_cast<std::uint32_t>(marks_.size() - 1)};
    }
    compute.beside = current;  // the second walk of a body finds what the first found, and more
  }

  /// What is in flight for a kernel on a stream, which it is issued behind.
  std::vector<FlightId> BesideNow(std::size_t of) {
    std::vector<FlightId> flights;
    for (std::size_t stream = 0; stream < state_.flights.size(); ++stream) {
      Flight& flight = state_.flights[stream];
      if ((state_.streams[of] & BitOf(stream)) == 0) {
        flights.push_back(flight.of);
        for (const std::uint32_t collective : flight.unheard) {
          has_kernel_behind_[collective] = true;
        }
        flight.unheard.clear();
      }
    }
    return flights;
  }

  Program& program_;
  State state_;
  std::vector<std::vector<FlightId>> marks_;
  std::vector<FlightSetId> current_;      ///< by stream: of its last kernel; not valid: it has changed since
  std::vector<std::uint32_t> joined_to_;  ///< by node of a collective: another of its flight, or itself
  std::vector<bool> has_kernel_behind_;   ///< by node of a collective: in its flight
};

}  // namespace

void MarkOverlap(Program& program) {
  OverlapMarker marker(program);
  marker.Walk(0, program.nodes.size());
  marker.Number();
}

}  // namespace tidemark
