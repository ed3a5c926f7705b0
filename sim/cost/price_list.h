// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/machine/machine.h"
#include "sim/cost/cost.h"
#include "sim/program/program.h"

namespace tidemark {

/// Which nodes of a step cost the same on every machine, so that a machine prices each of them once: the layers of all
/// microbatches are a few dozen kernels.
///
/// Cost: all nodes once, and then for each machine the distinct ones.
class PriceList {
 public:
  explicit PriceList(const StepProgram& step);

  /// Equal to PriceAll(step, machine), for the step that the list was made of.
  std::vector<Costs> Price(const StepProgram& step, const Machine& machine) const;

 private:
  struct Place {
    std::size_t role, node;
  };
  std::vector<Place> distinct_;                    ///< the first node of each price
  std::vector<std::vector<std::uint32_t>> which_;  ///< by role and node: index of distinct_
};

}  // namespace tidemark
