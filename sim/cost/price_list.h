// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/quantity.h"
#include "models/machine/machine.h"
#include "sim/program/program.h"

namespace tidemark {

/// Which nodes of a step cost the same on every machine, so that a machine prices each of them once: the layers of all
/// microbatches are a few dozen kernels, each of them alone and beside a few flights of collectives (overlap.h).
///
/// Cost: all nodes once, and then for each machine the distinct ones.
class PriceList {
 public:
  explicit PriceList(const StepProgram& step);

  /// Which of the prices a node of a role has.
  std::uint32_t Which(std::size_t role, std::size_t node) const { return which_[role][node]; }
  /// For the step that the list was made of: Price(step, machine)[Which(role, node)] is what PriceAll says of the node.
  std::vector<Nanos> Price(const StepProgram& step, const Machine& machine) const;

 private:
  struct Place {
    std::size_t role, node;
  };
  /// What has this price alone, and is in this flight or beside this set of flights, so often in all.
  struct Flying {
    std::uint32_t alone;  ///< index of alone_
    std::uint32_t of;     ///< the flight's number, counted through all roles; or index of flight_sets_
    std::int64_t times = 0;
  };

  void AddAlone(const StepProgram& step);
  void AddFlying(const StepProgram& step);

  std::vector<Place> alone_;                        ///< the first node of each price of what is beside nothing
  std::vector<Flying> collectives_, kernels_;       ///< the prices of kernels_ follow those of alone_
  std::vector<std::vector<FlightId>> flight_sets_;  ///< of all roles
  std::vector<std::vector<std::uint32_t>> which_;   ///< by role and node: index of its price
};

}  // namespace tidemark
