// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/zero3_modules.h"

#include <algorithm>

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

class Tracer {
 public:
  Tracer(const Stage& stage, std::int64_t threshold) : stage_(stage) {
    for (std::int64_t position = 0; position < stage.blocks; ++position) {
      trace_.first_number.push_back(static_cast<std::int64_t>(trace_.parameters.size()));
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
      AddPass(position, 0, stage_.BlockAt(position).forward.size(), false);
    }
    trace_.forward_uses = trace_.uses.size();
    for (std::int64_t position = stage_.blocks - 1; position >= 0; --position) {
      const Block& block = stage_.BlockAt(position);
      AddPass(position, block.forward.size(), block.forward.size() + block.backward.size(), true);
    }
    return std::move(trace_);
  }

 private:
  /// Forward work done again is a pass of its own.
  void AddPass(std::int64_t position, std::size_t begin, std::size_t end, bool backward) {
    const Block& block = stage_.BlockAt(position);
    const std::vector<std::uint32_t> modules = ModulesOf(block);
    std::vector<ModuleUse> uses;
    std::vector<std::pair<std::uint32_t, bool>> names;  // of `uses`: the module, and whether it is recomputed
    for (std::size_t i = begin; i < end; ++i) {
      const Action& action = backward ? block.backward[i - block.forward.size()] : block.forward[i];
      const auto* calculate = std::get_if<Calculate>(&action);
      if (calculate == nullptr) {
        continue;
      }
      for (const ParameterId parameter : NeededBy(block, *calculate)) {
        const std::pair name{modules[parameter.index], calculate->recompute};
        const auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end()) {
          names.push_back(name);
          uses.push_back({position, i, i, MembersOf(position, modules, name.first), false});
        } else {
          uses[static_cast<std::size_t>(found - names.begin())].last = i;
        }
      }
    }
    for (ModuleUse& use : uses) {
      use.released_late = backward && position == 0 && !block.input_gradient.valid();
      trace_.at[static_cast<std::size_t>(position)].push_back(trace_.uses.size());
      trace_.uses.push_back(std::move(use));
    }
  }

  std::vector<std::int64_t> MembersOf(std::int64_t position, const std::vector<std::uint32_t>& modules,
                                      std::uint32_t module) const {
    std::vector<std::int64_t> members;
    for (std::uint32_t i = 0; i < modules.size(); ++i) {
      if (modules[i] == module) {
        const bool tied = stage_.BlockAt(position).parameters[i].tied;
        members.push_back(trace_.NumberOf(tied ? kTiedTo : ParameterAt{position, i}));
      }
    }
    std::sort(members.begin(), members.end());
    return members;
  }

  const Stage& stage_;
  ModuleTrace trace_;
};

}  // namespace

std::int64_t ModuleTrace::NumberOf(const ParameterAt& at_parameter) const {
  return first_number[static_cast<std::size_t>(at_parameter.position)] + at_parameter.parameter;
}

ModuleTrace TraceModules(const Stage& stage, std::int64_t persistence_threshold) {
  return Tracer(stage, persistence_threshold).Trace();
}

}  // namespace tidemark
