// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/xla/versions.h"

namespace tidemark {

void VersionTable::Declare(Role& role, const std::string& what, Category category, DType dtype, std::int64_t versions) {
  versions_ = versions;
  for (const StageRun& run : role.stage.runs) {
    buffers_.emplace_back();
    for (const Parameter& parameter : run.block().parameters) {
      buffers_.back().push_back(IsTrained(parameter)
                                    ? role.builder.AddBuffer({what + " " + run.block().name + "." + parameter.name,
                                                              category,
                                                              dtype,
                                                              parameter.elements,
                                                              {run.count, versions},
                                                              role.compute})
                                    : BufferId{});
    }
  }
}

BufferRef VersionTable::operator()(const Role& role, const ParameterAt& at, Index version) const {
  const BufferId family = buffers_[role.stage.RunOf(at.position)][at.parameter];
  return {family, {role.At(at.position), versions_ == 1 ? Index{} : version}};
}

}  // namespace tidemark
