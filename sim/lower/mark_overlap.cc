// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/mark_overlap.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidemark {
namespace {

class OverlapMarker {
 public:
  explicit OverlapMarker(Program& program)
      : program_(program),
        state_{std::vector<bool>(program.streams.size()), 0, std::vector<std::uint32_t>(program.events.size())} {}

  void Walk(std::size_t at, std::size_t end) {
    while (at < end) {
      Node& node = program_.nodes[at++];
      if (const auto* repeat = std::get_if<Repeat>(&node)) {
        const std::size_t body_end = at + repeat->size;
        // The first walk finds what is in flight at the end of the body, the second starts with it as well; where
        // that is nothing new, it would find the same.
        const State before = state_;
        Walk(at, body_end);
        if (!AddsNothing(before)) {
          for (std::uint32_t i = 0; i < before.in_flight.size(); ++i) {
            SetInFlight(i, state_.in_flight[i] || before.in_flight[i]);
          }
          Walk(at, body_end);
        }
        at = body_end;
      } else {
        Visit(node);
      }
    }
  }

 private:
  struct State {
    std::vector<bool> in_flight;             ///< per stream
    std::int64_t flying = 0;                 ///< streams
    std::vector<std::uint32_t> recorded_on;  ///< per event
  };

  bool AddsNothing(const State& before) const {
    for (std::size_t i = 0; i < before.in_flight.size(); ++i) {
      if (state_.in_flight[i] && !before.in_flight[i]) {
        return false;
      }
    }
    return state_.recorded_on == before.recorded_on;
  }

  void SetInFlight(std::uint32_t stream, bool flies) {
    state_.flying += (flies ? 1 : 0) - (state_.in_flight[stream] ? 1 : 0);
    state_.in_flight[stream] = flies;
  }

  void Visit(Node& node) {
    if (auto* compute = std::get_if<Compute>(&node)) {
      const bool on_host = program_.streams[compute->stream.index].kind == StreamKind::host;
      compute->beside_collective = state_.flying > 0 && !on_host;
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      SetInFlight(collective->stream.index, true);
    } else if (const auto* record = std::get_if<Record>(&node)) {
      state_.recorded_on[record->event.index] = record->stream.index;
    } else if (const auto* wait = std::get_if<Wait>(&node)) {
      if (program_.streams[wait->stream.index].kind == StreamKind::compute) {
        SetInFlight(state_.recorded_on[wait->event.index], false);
      }
    } else if (const auto* sync = std::get_if<HostSync>(&node)) {
      for (std::uint32_t i = 0; i < state_.in_flight.size(); ++i) {
        SetInFlight(i, state_.in_flight[i] && sync->stream.valid() && i != sync->stream.index);
      }
    }
  }

  Program& program_;
  State state_;
};

}  // namespace

void MarkOverlap(Program& program) { OverlapMarker(program).Walk(0, program.nodes.size()); }

}  // namespace tidemark
