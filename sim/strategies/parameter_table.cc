// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/parameter_table.h"

namespace tidemark {

void ParameterTable::Declare(Role& role, const std::string& what, Category category, DType dtype,
                             const Elements& elements_of, bool resident, bool kept) {
  for (const BlockRun& run : role.stage.runs) {
    buffers_.emplace_back();
    for (const Parameter& parameter : run.block.parameters) {
      const std::int64_t elements = parameter.tied ? 0 : elements_of(parameter);
      buffers_.back().push_back(elements == 0
                                    ? BufferId{}
                                    : role.builder.AddBuffer({what + " " + run.block.name + "." + parameter.name,
                                                              category,
                                                              dtype,
                                                              elements,
                                                              {run.count, 1},
                                                              role.compute,
                                                              Place::device,
                                                              resident,
                                                              kept}));
    }
  }
}

}  // namespace tidemark
