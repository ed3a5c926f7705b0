// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/lower/stage.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// One pass of a module that owns parameters: DeepSpeed fetches them before its first action and releases them after
/// its last.
struct ModuleUse {
  std::int64_t position = 0;
  std::size_t first = 0, last = 0;    ///< actions, as BlockWriter counts them
  std::vector<std::int64_t> members;  ///< numbers of its parameters, ascending
  bool released_late = false;         ///< nothing below needs a gradient: its hook after the backward pass never runs
};

/// What the parameter coordinator traces: modules in the order of their forward and backward passes, and the stage's
/// parameters, numbered in definition order. A module is what one forward action reads (a linear's weight and bias, a
/// norm's weight); a tied head reads the embedding's parameter.
struct ModuleTrace {
  struct Traced {
    ParameterAt at;
    std::int64_t elements = 0;
    bool persistent = false;  ///< at most `shard.persistence_threshold` elements
  };
  std::vector<Traced> parameters;
  std::vector<ModuleUse> uses;
  std::size_t forward_uses = 0;              ///< so many of `uses` are the forward pass's
  std::vector<std::vector<std::size_t>> at;  ///< uses by position, in order; forward and backward alike

  std::int64_t NumberOf(const ParameterAt& at_parameter) const;
  std::vector<std::int64_t> first_number;  ///< by position
};

ModuleTrace TraceModules(const Stage& stage, std::int64_t persistence_threshold);

}  // namespace tidemark
