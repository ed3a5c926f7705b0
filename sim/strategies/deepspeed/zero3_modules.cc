// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/zero3_modules.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace tidemark {
namespace {

constexpr ParameterAt kTiedTo{0, 0};

/// Modules of one block: for each parameter the lowest-numbered one that some action reads together with it.
std::vector<std::uint32_t> ModulesOf(const Block& block) {
  std::vector<std::uint32_t> module(block.parameters.size());
  for (std::uint32_t i = 0; i < module.size(); ++i) {
    module[i] = i;
  }
  for (const Action& action : block.forward) {
    const auto* calculate = std::get_if<Calculate>(&action);
    if (calculate == nullptr || calculate->parameters.empty()) {
      continue;
    }
    std::uint32_t lowest = module[calculate->parameters.front().index];
    for (const ParameterId parameter : calculate->parameters) {
      lowest = std::min(lowest, module[parameter.index]);
    }
    for (const ParameterId parameter : calculate->parameters) {
      module[parameter.index] = lowest;
    }
  }
  return module;
}

/// The parameters with which an action needs its module: those it reads, and those whose gradients somebody asks for.
std::vector<ParameterId> NeededBy(const Block& block, const Calculate& action) {
  std::vector<ParameterId> needed = action.parameters;
  for (const ParameterId parameter : action.gradients) {
    if (block.parameters[parameter.index].trainable) {
      needed.push_back(parameter);
    }
  }
  return needed;
}

/// A module's pass in any block that is like this one: its parameters by their place in the block.
struct PassOfModule {
  std::size_t first = 0, last = 0;  ///< actions, as BlockWriter counts them
  std::vector<std::uint32_t> parameters;
};

/// Forward work done again is a pass of its own.
std::vector<PassOfModule> PassesOf(const Block& block, bool backward) {
  const std::vector<std::uint32_t> modules = ModulesOf(block);
  const std::vector<Action>& actions = backward ? block.backward : block.forward;
  const std::size_t begin = backward ? block.forward.size() : 0;
  std::vector<PassOfModule> passes;
  std::vector<std::pair<std::uint32_t, bool>> names;  // of `passes`: the module, and whether it is recomputed
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto* calculate = std::get_if<Calculate>(&actions[i]);
    if (calculate == nullptr) {
      continue;
    }
    for (const ParameterId parameter : NeededBy(block, *calculate)) {
      const std::pair name{modules[parameter.index], calculate->recompute};
      const auto found = std::find(names.begin(), names.end(), name);
      if (found != names.end()) {
        passes[static_cast<std::size_t>(found - names.begin())].last = begin + i;
        continue;
      }
      names.push_back(name);
      PassOfModule pass{begin + i, begin + i, {}};
      for (std::uint32_t member = 0; member < modules.size(); ++member) {
        if (modules[member] == name.first) {
          pass.parameters.push_back(member);
        }
      }
      passes.push_back(std::move(pass));
    }
  }
  return passes;
}

class Tracer {
 public:
  Tracer(const Stage& stage, std::int64_t threshold) : stage_(stage) {
    for (std::int64_t position = 0; position < stage.blocks; ++position) {
      trace_.first_number.push_back(std::ssize(trace_.parameters));
      const std::vector<Parameter>& parameters = stage.BlockAt(position).parameters;
      for (std::uint32_t i = 0; i < parameters.size(); ++i) {
        trace_.parameters.push_back(
            {{position, i}, parameters[i].elements, !parameters[i].tied && parameters[i].elements <= threshold});
      }
    }
    trace_.at.resize(static_cast<std::size_t>(stage.blocks));
  }

  ModuleTrace Trace() && {
    for (std::int64_t position = 0; position < stage_.blocks; ++position) {
      AddPass(position, false);
    }
    trace_.forward_uses = trace_.uses.size();
    for (std::int64_t position = stage_.blocks - 1; position >= 0; --position) {
      AddPass(position, true);
    }
    return std::move(trace_);
  }

 private:
  void AddPass(std::int64_t position, bool backward) {
    const Block& block = stage_.BlockAt(position);
    const auto known = passes_.try_emplace({&block, backward});
    if (known.second) {
      known.first->second = PassesOf(block, backward);
    }
    for (const PassOfModule& pass : known.first->second) {
      ModuleUse use{position, pass.first, pass.last, {}, backward && position == 0 && !block.input_gradient.valid()};
      use.members.reserve(pass.parameters.size());
      for (const std::uint32_t parameter : pass.parameters) {
        use.members.push_back(
            trace_.NumberOf(block.parameters[parameter].tied ? kTiedTo : ParameterAt{position, parameter}));
      }
      std::sort(use.members.begin(), use.members.end());
      trace_.at[static_cast<std::size_t>(position)].push_back(trace_.uses.size());
      trace_.uses.push_back(std::move(use));
    }
  }

  const Stage& stage_;
  ModuleTrace trace_;
  std::map<std::pair<const Block*, bool>, std::vector<PassOfModule>> passes_;  ///< of blocks that are alike
};

}  // namespace

std::int64_t ModuleTrace::NumberOf(const ParameterAt& at_parameter) const {
  return first_number[static_cast<std::size_t>(at_parameter.position)] + at_parameter.parameter;
}

ModuleTrace TraceModules(const Stage& stage, std::int64_t persistence_threshold) {
  return Tracer(stage, persistence_threshold).Trace();
}

}  // namespace tidemark
