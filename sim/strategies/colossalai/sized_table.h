// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// As ParameterTable, but a buffer's size follows from its parameter: padded to the group, or one rank's part.
class SizedTable {
 public:
  /// Names the buffers "<what> <block>.<parameter>"; `elements_of(parameter)` says how large they are, 0 that there is
  /// none. `stays`: alive when a step begins, and when it ends.
  template <class ElementsOf>
  void Declare(Role& role, const std::string& what, Category category, DType dtype, StreamId stream,
               ElementsOf elements_of, bool stays = false) {
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
                                                                stream,
                                                                Place::device,
                                                                stays,
                                                                stays}));
      }
    }
  }

  BufferRef operator()(const Role& role, const ParameterAt& at) const {
    return {buffers_[role.stage.RunOf(at.position)][at.parameter], {role.At(at.position), Index{}}};
  }

 private:
  std::vector<std::vector<BufferId>> buffers_;  ///< per run and parameter
};

}  // namespace tidemark
