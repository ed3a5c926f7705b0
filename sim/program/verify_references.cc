// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sim/program/entry_name.h"
#include "sim/program/text.h"
#include "sim/program/verify_role.h"

namespace tidemark {
namespace {

/// Checks that whatever an id, a loop or a body points to is there.
class ReferenceChecker {
 public:
  ReferenceChecker(const Program& program, Findings& findings) : program_(program), findings_(findings) {}

  bool Run() {
    CheckTables();
    CollectFlights();
    CheckFlightSets();
    for (at_ = 0; at_ < program_.nodes.size(); ++at_) {
      while (!around_.empty() && around_.back().end <= at_) {
        around_.pop_back();
      }
      CheckNode(program_.nodes[at_]);
    }
    return good_;
  }

 private:
  struct Body {
    LoopId loop;
    std::size_t end;
  };

  void CheckTables() {
    at_ = program_.nodes.size();
    if (program_.streams.empty() || program_.streams.front().kind != StreamKind::host) {
      Add("the first stream is not the host");
    }
    for (const Buffer& buffer : program_.buffers) {
      CheckId(buffer.stream, program_.streams, "stream");
      if (buffer.extents[0] < 0 || buffer.extents[1] < 0) {
        Add(fmt::format("buffer {} has a negative extent", buffer.name));
      }
      if (buffer.is_view() && (buffer.resident || buffer.kept)) {
        Add(fmt::format("{} is a view: only its base can be resident or kept", buffer.name));
      } else if (buffer.base.valid() && !buffer.slices.empty()) {
        Add(fmt::format("{} is a view of a base, and of slices", buffer.name));
      } else if (buffer.base.valid()) {
        CheckView(buffer);
      } else if (!buffer.slices.empty()) {
        CheckSlices(buffer);
      }
    }
    CheckOverlaps();
    CheckUnique(program_.groups, "group");
    CheckUnique(program_.channels, "channel");
    CheckUnique(program_.streams, "stream");
    CheckUnique(program_.events, "event");
    CheckUnique(program_.buffers, "buffer");
    CheckUnique(program_.loops, "loop");
  }

  void CollectFlights() {
    for (const Node& node : program_.nodes) {
      if (const auto* collective = std::get_if<Collective>(&node);
          collective != nullptr && collective->flight.valid()) {
        flights_.emplace(collective->flight.index, collective->stream);
      }
    }
  }

  void CheckFlightSets() {
    std::set<std::vector<FlightId>> seen;
    for (const std::vector<FlightId>& flights : program_.flight_sets) {
      for (const FlightId flight : flights) {
        if (!flights_.contains(flight.index)) {
          Add(fmt::format("no collective is in flight {}", flight.index));
        }
      }
      if (flights.empty() || !seen.insert(flights).second) {
        Add("a set of flights is empty, or is there twice");
      }
      if (!std::ranges::is_sorted(flights, std::ranges::less_equal())) {
        Add("flights of a set do not ascend");
      }
    }
  }

  void CheckView(const Buffer& view) {
    if (!CheckId(view.base, program_.buffers, "buffer")) {
      return;
    }
    const Buffer& base = program_.buffers[view.base.index];
    if (base.is_view() || base.count() != 1) {
      Add(fmt::format("{} is a view of {}, which is not one buffer with memory of its own", view.name, base.name));
    } else if (view.bytes() > base.bytes()) {
      Add(fmt::format("{} needs {} bytes, but {} has {}", view.name, view.bytes().count(), base.name,
                      base.bytes().count()));
    }
  }

  void CheckSlices(const Buffer& view) {
    if (std::ssize(view.slices) != view.count()) {
      Add(fmt::format("{} are {} buffers and {} slices", view.name, view.count(), view.slices.size()));
    }
    for (const BufferSlice& slice : view.slices) {
      if (!CheckId(slice.of, program_.buffers, "buffer")) {
        continue;
      }
      const Buffer& whole = program_.buffers[slice.of.index];
      const bool fits = slice.first >= 0 && slice.first + view.elements <= whole.elements;
      if (whole.is_view() || whole.count() != 1 || whole.dtype != view.dtype || !fits) {
        Add(fmt::format("{} is a slice of {} at {}, which is not one buffer with so many elements of its dtype",
                        view.name, whole.name, slice.first));
      }
      slices_[slice.of.index].emplace_back(slice.first, view.elements);
    }
  }

  void CheckOverlaps() {
    for (auto& [whole, slices] : slices_) {
      std::ranges::sort(slices);
      const auto overlap = std::ranges::adjacent_find(
          slices, [](const auto& one, const auto& next) { return one.first + one.second > next.first; });
      if (overlap != slices.end()) {
        Add(fmt::format("two slices of {} overlap at {}", program_.buffers[whole].name, std::next(overlap)->first));
      }
      const auto is_all_of_it = [id = whole](const Buffer& buffer) { return buffer.base.index == id; };
      if (std::ranges::any_of(program_.buffers, is_all_of_it)) {
        Add(fmt::format("{} has slices, and a view that is all of it", program_.buffers[whole].name));
      }
    }
  }

  void CheckNode(const Node& node) {
    std::visit(
        [&](const auto& leaf) {
          using Leaf = std::remove_cvref_t<decltype(leaf)>;
          if constexpr (requires { leaf.name; }) {
            CheckId(leaf.name, program_.names, "name");
          }
          if constexpr (requires { leaf.group; }) {
            CheckId(leaf.group, program_.groups, "group");
          }
          if constexpr (requires { leaf.channel; }) {
            CheckId(leaf.channel, program_.channels, "channel");
          }
          if constexpr (requires { leaf.event; }) {
            CheckId(leaf.event, program_.events, "event");
          }
          if constexpr (requires { leaf.stream; }) {
            if (!std::same_as<Leaf, HostSync> || leaf.stream.valid()) {
              CheckId(leaf.stream, program_.streams, "stream");
            }
          }
        },
        node);
    ForEachAccess(node, [&](const BufferRef& ref, Access access) {
      if (CheckId(ref.buffer, program_.buffers, "buffer") && program_.buffers[ref.buffer.index].is_view() &&
          (access == Access::alloc || access == Access::free)) {
        Add(fmt::format("{} is a view: only its base can be allocated and freed",
                        program_.buffers[ref.buffer.index].name));
      }
      if (slices_.contains(ref.buffer.index) && access != Access::alloc && access != Access::free) {
        Add(fmt::format("{} has slices: it is only allocated and freed itself",
                        program_.buffers[ref.buffer.index].name));
      }
      CheckIndex(ref.index[0]);
      CheckIndex(ref.index[1]);
    });
    if (const auto* begin = std::get_if<Begin>(&node)) {
      CheckIndex(begin->microbatch);
    } else if (const auto* compute = std::get_if<Compute>(&node)) {
      CheckBeside(*compute);
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      const auto flight = flights_.find(collective->flight.index);
      if (flight != flights_.end() && flight->second != collective->stream) {
        Add(fmt::format("flight {} is of another stream", flight->first));
      }
    } else if (const auto* repeat = std::get_if<Repeat>(&node)) {
      CheckRepeat(*repeat);
    }
  }

  void CheckBeside(const Compute& compute) {
    if (!compute.beside.valid() || !CheckId(compute.beside, program_.flight_sets, "set of flights")) {
      return;
    }
    if (compute.stream.index < program_.streams.size() &&
        program_.streams[compute.stream.index].kind != StreamKind::compute) {
      Add("only kernels of the compute stream are beside flights");
    }
  }

  void CheckIndex(const Index& index) {
    if (index.modulus < 0) {
      Add(fmt::format("an index has the modulus {}", index.modulus));
    }
    if (index.loop.valid() && CheckId(index.loop, program_.loops, "loop") && !IsAround(index.loop)) {
      Add(fmt::format("loop {} is not around it", program_.loops[index.loop.index]));
    }
  }

  void CheckRepeat(const Repeat& repeat) {
    const std::size_t outer_end = around_.empty() ? program_.nodes.size() : around_.back().end;
    const std::size_t end = at_ + 1 + repeat.size;
    if (end > outer_end) {
      Add("its body does not end within the body around it");
    }
    if (repeat.count < 1 || repeat.step == 0) {
      Add(fmt::format("it runs {} times by steps of {}", repeat.count, repeat.step));
    }
    if (CheckId(repeat.loop, program_.loops, "loop") && IsAround(repeat.loop)) {
      Add(fmt::format("loop {} is around it already", program_.loops[repeat.loop.index]));
    }
    around_.push_back({repeat.loop, std::min(end, outer_end)});
  }

  bool IsAround(LoopId loop) const {
    return std::any_of(around_.begin(), around_.end(), [&](const Body& body) { return body.loop == loop; });
  }

  template <class Table, class IdType>
  bool CheckId(IdType id, const Table& table, std::string_view what) {
    if (id.index < table.size()) {
      return true;
    }
    Add(fmt::format("there is no {} {} in a table of {}", what, id.index, table.size()));
    return false;
  }

  template <class Table>
  void CheckUnique(const Table& table, std::string_view what) {
    std::unordered_set<std::string_view> seen;
    for (const auto& entry : table) {
      if (!seen.insert(NameOf(entry)).second) {
        Add(fmt::format("there are two {}s called {}", what, NameOf(entry)));
      }
    }
  }

  void Add(std::string message) {
    good_ = false;
    const std::string where =
        at_ < program_.nodes.size() ? fmt::format(", node {} ({})", at_, Print(program_, program_.nodes[at_])) : "";
    findings_.Add({Finding::Rule::bad_reference, program_.role_index, at_, serial_++},
                  fmt::format("{}{}: {}", program_.role, where, message));
  }

  const Program& program_;
  Findings& findings_;
  std::map<std::uint32_t, std::vector<std::pair<std::int64_t, std::int64_t>>> slices_;  ///< by whole: first, elements
  std::vector<Body> around_;
  std::unordered_map<std::uint32_t, StreamId> flights_;  ///< that collectives are in, each with the first one's stream
  std::size_t at_ = 0;
  std::size_t serial_ = 0;
  bool good_ = true;
};

}  // namespace

bool CheckReferences(const Program& program, Findings& findings) { return ReferenceChecker(program, findings).Run(); }

}  // namespace tidemark
