// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/parameter_order.h"

#include <cstddef>
#include <cstdint>
#include <variant>

namespace tidemark {

std::vector<ParameterAt> ArrivalOrder(const Role& role) {
  std::vector<ParameterAt> order;
  for (std::int64_t position = role.stage.blocks - 1; position >= 0; --position) {
    const Block& block = role.stage.BlockAt(position);
    for (const Action& action : block.backward) {
      const auto* calculation = std::get_if<Calculate>(&action);
      for (std::size_t i = 0; calculation != nullptr && i < calculation->gradients.size(); ++i) {
        const ParameterId parameter = calculation->gradients[i];
        if (IsTrained(block.parameters[parameter.index])) {
          order.push_back({position, parameter.index});
        }
      }
    }
  }
  return order;
}

std::vector<ParameterAt> DefinitionOrder(const Role& role) {
  std::vector<ParameterAt> order;
  for (std::int64_t position = 0; position < role.stage.blocks; ++position) {
    ForEachTrained(role, position, [&](const ParameterAt& at) { order.push_back(at); });
  }
  return order;
}

void AppendMembers(const Role& role, const std::vector<ParameterAt>& members, std::int64_t position,
                   std::vector<std::int64_t>& key) {
  for (const ParameterAt& member : members) {
    key.push_back(role.KeyOf(member.position, position));
    key.push_back(member.parameter);
  }
}

/// Those of the run that is being folded move; what was remembered of another one stays.
void ShiftMembers(const Role& role, std::vector<ParameterAt>& members, std::int64_t blocks) {
  const std::size_t run = role.stage.RunOf(role.current());
  for (ParameterAt& member : members) {
    member.position += role.stage.RunOf(member.position) == run ? blocks : 0;
  }
}

}  // namespace tidemark
