// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/program_length.h"

#include <fmt/format.h>

#include "base/text.h"
#include "sim/predict/communication.h"

namespace tidemark {

std::int64_t CountEvents(const StepProgram& step) {
  std::int64_t events = 0;
  for (const Program& program : step.roles) {
    events += CountLeaves(program);
  }
  return events;
}

Status CheckLength(const StepProgram& step, const Job& job, const std::string& hint, std::int64_t most) {
  const std::int64_t events = CountEvents(step);
  if (events <= most) {
    return Done{};
  }
  return BadKey("accumulation_steps",
                fmt::format("with {} microbatches a step has {} events, more than the {} that are kept",
                            Grouped(job.accumulation_steps), Grouped(events), Grouped(most)),
                hint);
}

}  // namespace tidemark
