// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/parameter_table.h"

namespace tidemark {

void ParameterTable::Declare(Role& role, const std::string& what, Category category, DType dtype, Of of, bool resident,
                             bool kept) {
  for (const BlockRun& run : role.stage.runs) {
    buffers_.emplace_back();
    for (const Parameter& parameter : run.block.parameters) {
      const bool has_one = !parameter.tied && (of == Of::all || parameter.trainable);
      buffers_.back().push_back(!has_one ? BufferId{}
                                         : role.builder.AddBuffer({what + " " + run.block.name + "." + parameter.name,
                                                                   category,
                                                                   dtype,
                                                                   parameter.elements,
                                                                   {run.count, 1},
                                                                   role.compute,
                                                                   Place::device,
                                                                   resident,
                                                                   kept}));
    }
  }
}

}  // namespace tidemark
