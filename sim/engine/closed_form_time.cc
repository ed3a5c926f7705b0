// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/closed_form.h"
#include "sim/engine/ensemble.h"
#include "sim/engine/time_program.h"

// Time without unrolling
// ----------------------
// A role's clock is a list of moments: its host, every stream, every event. A leaf replaces some moments by the latest
// of others plus a constant, and adds the idle interval of the compute stream that it finds to a part of the step. All
// choices ("which was the latest?") are comparisons of moments.
//
// A Repeat is therefore run a few times only: RunRegime (regime.h) proves from one iteration here and one far ahead
// that all iterations between make the same choices, and leaps over them exactly.
//
// With several roles the same holds for all their clocks at once: see ensemble.h.

namespace tidemark {

StepTime FoldTime(const TimedStep& step) {
  Ensemble ensemble(step);
  ensemble.Settle();
  std::uint64_t choices = 0;
  return ensemble.Finish(choices);
}

StepTime FoldTime(const StepProgram& step, std::span<const Costs> costs) { return FoldTime(ReduceToTime(step, costs)); }

Evaluation EvaluateClosedForm(const StepProgram& step, std::span<const Costs> costs) {
  Evaluation evaluation;
  for (const Program& program : step.roles) {
    evaluation.roles.push_back(FoldMemory(program));
  }
  evaluation.time = FoldTime(step, costs);
  return evaluation;
}

}  // namespace tidemark
