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
/// microbatches are a few dozen kernels.
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
  std::vector<Place> distinct_;                    ///< the first node of each price
  std::vector<std::vector<std::uint32_t>> which_;  ///< by role and node: index of distinct_
};

}  // namespace tidemark
