// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/mark_overlap.h"

#include <vector>

namespace tidemark {
namespace {

class OverlapMarker {
 public:
  explicit OverlapMarker(Program& program)
      : program_(program), in_flight_(program.streams.size()), recorded_on_(program.events.size()) {}

  void Walk(std::size_t at, std::size_t end) {
    while (at < end) {
      Node& node = program_.nodes[at++];
      if (const auto* repeat = std::get_if<Repeat>(&node)) {
        const std::size_t body_end = at + repeat->size;
        // The first walk finds what is in flight at the end of the body, the second starts with it as well.
        const std::vector<bool> before = in_flight_;
        Walk(at, body_end);
        for (std::size_t i = 0; i < before.size(); ++i) {
          in_flight_[i] = in_flight_[i] || before[i];
        }
        Walk(at, body_end);
        at = body_end;
      } else {
        Visit(node);
      }
    }
  }

 private:
  void Visit(Node& node) {
    if (auto* compute = std::get_if<Compute>(&node)) {
      compute->beside_collective = false;
      const bool on_host = program_.streams[compute->stream.index].kind == StreamKind::host;
      for (const bool flies : in_flight_) {
        compute->beside_collective |= flies && !on_host;
      }
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      in_flight_[collective->stream.index] = true;
    } else if (const auto* record = std::get_if<Record>(&node)) {
      recorded_on_[record->event.index] = record->stream.index;
    } else if (const auto* wait = std::get_if<Wait>(&node)) {
      if (program_.streams[wait->stream.index].kind == StreamKind::compute) {
        in_flight_[recorded_on_[wait->event.index]] = false;
      }
    } else if (const auto* sync = std::get_if<HostSync>(&node)) {
      if (sync->stream.valid()) {
        in_flight_[sync->stream.index] = false;
      } else {
        in_flight_.assign(in_flight_.size(), false);
      }
    }
  }

  Program& program_;
  std::vector<bool> in_flight_;             ///< per stream
  std::vector<std::uint32_t> recorded_on_;  ///< per event
};

}  // namespace

void MarkOverlap(Program& program) { OverlapMarker(program).Walk(0, program.nodes.size()); }

}  // namespace tidemark
