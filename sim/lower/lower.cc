// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/lower.h"

#include "sim/lower/mark_overlap.h"
#include "sim/lower/stage.h"
#include "sim/lower/write_role.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

Result<StepProgram> Lower(const Job& job, StepKind step) {
  TIDEMARK_ASSIGN(const Strategy strategy, FindStrategy(job.strategy));
  TIDEMARK_TRY(strategy.refuse(job));
  TIDEMARK_ASSIGN(const std::vector<Stage> stages, CutIntoStages(job));
  StepProgram program;
  for (const Stage& stage : stages) {
    program.roles.push_back(WriteRole(job, stage, step, strategy));
    MarkOverlap(program.roles.back());
  }
  return program;
}

}  // namespace tidemark
