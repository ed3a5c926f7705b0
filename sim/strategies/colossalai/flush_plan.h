// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// Parameters that travel together, first one first.
using FlushMembers = std::vector<ParameterAt>;

/// Flushes of equal make-up share one buffer family; `anchor`, the last member, says which buffer of it.
struct FlushPlace {
  std::size_t shape = 0;
  ParameterAt anchor;
  friend bool operator==(const FlushPlace&, const FlushPlace&) = default;
};

/// In which flushes of at most `limit` elements a list of parameters leaves, when the one that no longer fits sends off
/// those before it. A parameter larger than the limit travels alone.
class FlushPlan {
 public:
  struct Shape {
    std::int64_t elements = 0;     ///< of all members, as `counted`
    std::size_t run = 0;           ///< of the anchor
    std::vector<HeldRun> members;  ///< of the flush whose anchor begins the run
  };
  /// Elements that a parameter takes up in a flush.
  using Counted = std::function<std::int64_t(const Parameter&)>;

  /// `compared`: what a parameter is measured by when it asks to be let in.
  FlushPlan(const Role& role, const FlushMembers& order, const Counted& counted, const Counted& compared,
            std::int64_t limit);

  const std::vector<FlushMembers>& flushes() const { return flushes_; }
  const std::vector<Shape>& shapes() const { return shapes_; }
  /// Of a flush that the plan has, or one with the same members elsewhere in the run.
  FlushPlace PlaceOf(const FlushMembers& members) const;
  /// The flush that a parameter travels in; nothing for one that is not on the list.
  std::optional<FlushPlace> FlushOf(const ParameterAt& at) const;
  /// Distinct flushes of one block's parameters.
  std::vector<FlushPlace> FlushesOf(std::int64_t position) const;
  /// Flushes whose last member is in this block, as they leave.
  std::vector<FlushMembers> FlushesThatEndIn(std::int64_t position) const;

  /// Appends to `key` which buffer a flush is in, relative to `position`.
  void AppendKey(const FlushPlace& place, std::int64_t position, std::vector<std::int64_t>& key) const;

 private:
  std::vector<std::int64_t> MakeUp(const FlushMembers& members) const;
  void Enter(const FlushMembers& members, const Counted& counted);

  const Role& role_;
  std::vector<FlushMembers> flushes_;
  std::vector<Shape> shapes_;
  std::map<std::vector<std::int64_t>, std::size_t> by_make_up_;
  std::map<std::pair<std::int64_t, std::uint32_t>, FlushPlace> of_parameter_;
};

}  // namespace tidemark
